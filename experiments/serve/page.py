"""The page to type into: it asks a server, or a model that it holds itself."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from transformer.bridges import browser
from transformer.bridges.formats import Export
from transformer.data.corpora import languages_of, tags_of
from transformer.files import write_text
from transformer.inference.segments import Segmenter, segment_rules
from transformer.runs.workdir import load_config
from transformer.tasks import REGISTRY
from ..attention.explorer import live_values
from ..display import web_page

OFFLINE_CHARACTERS = 2_000  # of a text on a page that holds a model


def shown_tags(data: ConfigDict) -> list[str]:
    """Returns the tags of which a page offers one."""
    tags = tags_of(data)
    return list(tags) if any(tags) else []


def write(export: Export, folder: Path) -> None:
    """Writes a page, `index.html`, that holds a translator and needs no network, into a folder."""
    config, predictor = export.config, export.predictor
    spec, numbers = browser.make_page_data(predictor, export.params)
    described = {
        "name": config.name,
        "task": config.task,
        "inputs": ["text"],
        "steps": list(export.steps),
        "languages": languages_of(load_config(export.run).data),
        "operations": ["translate", "attention"],
        "max_best": config.decode.beam_size,
        "source_tags": shown_tags(config.data),
    }
    encode = predictor.source_tokenizer.encode
    segmenter = Segmenter(config, export.run, encode, spec["maxLength"])
    most, tokens = segmenter.limits
    splits = config.decode.split_sentences != "never"
    rules = segment_rules(segmenter.language, segmenter.measured.get("words", {}))
    spec["segment"] = {"splits": splits, "sentences": most, "tokens": tokens, **rules}
    offline = {"spec": spec, "numbers": base64.b64encode(numbers).decode("ascii")}
    write_text(folder / "index.html", render_page([described], OFFLINE_CHARACTERS, offline))


def render_page(
    described: Sequence[Mapping[str, Any]],
    characters: int,
    offline: Mapping[str, Any] | None = None,
) -> str:
    """Returns the page of some runs; it asks for nothing but their answers.

    Args:
      described: what `Served.describe` returns of each run.
      characters: most of a text.
      offline: the single run's model, which the page then holds: `spec` and `numbers` of
        `bridges.browser.make_page_data`, the latter in base64.
    """
    tags = dict.fromkeys(tag for run in described for tag in run["source_tags"])
    headings = {REGISTRY[run["task"]].invitation for run in described}
    writing = [run["max_best"] for run in described if "classify" not in run["operations"]]
    return web_page.render(
        "serve.html",
        title=" and ".join(run["name"] for run in described),
        heading=headings.pop() if len(headings) == 1 else "Type to try the models",
        about={run["name"]: _about_run(run) for run in described},
        runs=described,
        tags=list(tags),
        best=max(writing, default=0),
        inputs={name for run in described for name in run["inputs"]},
        characters=characters,
        data=live_values(),
        offline=offline,
    )


def _about_run(run: Mapping[str, Any]) -> str:
    """A line about a run."""
    count, step = len(run["steps"]), f"step {run['steps'][-1]:,}"
    weights = step if count == 1 else f"mean of {count} checkpoints up to {step}"
    return f"{REGISTRY[run['task']].model_noun}, {weights}"
