"""The `serve` mode: a web page for trying models, and a JSON API, for one or more runs.

The page sends requests to the server; a page from `--mode=export --format=html` embeds a model.
"""

import base64
import json
import logging
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from transformer.bridges import browser
from transformer.bridges.formats import Export
from transformer.data.corpora import languages_of, tags_of
from transformer.data.held_out import path_of
from transformer.errors import UserError
from transformer.files import write_text
from transformer.inference.segments import Segmenter, segment_rules
from transformer.runs.loaded import LoadedRun, load
from transformer.runs.run import Run
from transformer.runs.workdir import load_config, run_folder
from transformer.tasks import REGISTRY
from ..attention.draw import live_values
from ..display import web_page
from ..process.modes import HOST, PORT, Options

logger = logging.getLogger(__name__)

LOCAL = "localhost", "127.0.0.1", "[::1]"
OFFLINE_CHARACTERS = 2_000  # maximum number of characters per text on a page with a model


def serve(run: Run, options: Options) -> None:
    """Serves a run, and the runs given by `--also`, until the process receives a signal."""
    try:
        from . import server
        from .routes import Served
    except ModuleNotFoundError as error:
        raise UserError(
            f'--mode=serve needs the package {error.name}: pip install "transformer-jax[serve]"'
        ) from None
    origins = [origin.rstrip("/").lower() for origin in _split_names(options.cors)]
    if wrong := [each for each in origins if each != "*" and "://" not in each]:
        raise UserError(f"--cors={wrong[0]} is not an origin: give https://example.org, or *")
    folders = [run.folder, *(run_folder(name) for name in _split_names(options.also))]
    run_names = name_runs(folders)
    host, port = options.host or HOST, PORT if options.port is None else options.port
    with server.listen(host, port) as listening:
        place, number = listening.getsockname()[:2]
        is_local, names = ip_address(place).is_loopback, _split_names(options.server_name)
        hosts = [*LOCAL, host, *names] if is_local or names else ["*"]
        if not is_local:
            logger.warning(
                f"--host={host}: everybody who reaches this address can use it, and nothing is "
                "encrypted: see docs/serving.md"
            )
        runs = [LoadedRun(run), *map(load, folders[1:])]
        served = list(map(Served, run_names, runs))
        place = f"[{place}]" if ":" in place else place
        logger.info(f"{', '.join(run_names)}: http://{place}:{number} (Ctrl-C ends it)")
        server.serve_runs(served, listening, hosts, origins)


def name_runs(folders: list[Path]) -> list[str]:
    """Returns a name for each run: the folder name, with parent folders if names clash."""
    paths = [folder.absolute().resolve().parts for folder in folders]
    for number, path in enumerate(paths):
        if path in paths[:number]:
            raise UserError(f"--also={folders[number]} is served already: name each folder once")
    count = 1
    while len({path[-count:] for path in paths}) < len(paths):
        count += 1
    return ["/".join(path[-count:]) for path in paths]


def _split_names(names: str | None) -> list[str]:
    return [name.strip() for name in (names or "").split(",") if name.strip()]


# -- the page


def example_of(folder: Path) -> str:
    """Returns the shortest of ten sources or texts of a run's test set, or '' if it has none."""
    if not (path := path_of(folder, "test")).exists():
        return ""
    lines = map(json.loads, path.read_text("utf-8").splitlines()[:10])
    texts = (line.get("source") or line.get("text") for line in lines)
    return min(filter(None, texts), key=len, default="")


def describe(name: str, folder: Path, config: ConfigDict, steps: Sequence[int]) -> dict[str, Any]:
    """Returns the description of a run, without its inputs and operations."""
    tags = tags_of(config.data)
    return {
        "name": name,
        "task": config.task,
        "steps": list(steps),
        "example": example_of(folder),
        "languages": languages_of(load_config(folder).data),
        "source_tags": list(tags) if any(tags) else [],
    }


def write_page(export: Export, folder: Path) -> None:
    """Writes `index.html`, an offline page with an embedded translation model, to a folder."""
    config, predictor = export.config, export.predictor
    spec, numbers = browser.make_page_data(predictor, export.params)
    described = describe(export.run.resolve().name, export.run, config, export.steps) | {
        "inputs": ["text"],
        "operations": ["translate", "next_tokens", "alternatives", "beam", "attention"],
        "max_best": config.decode.beam_size,
    }
    encode = predictor.source_tokenizer.encode
    segmenter = Segmenter(config, export.run, encode, spec["maxLength"])
    most, tokens = segmenter.limits
    splits = config.decode.split_sentences != "never"
    rules = segment_rules(segmenter.language, segmenter.measured.get("words", {}))
    rules["target"] = segment_rules(languages_of(config.data)[1], {})  # of prefixes
    spec["segment"] = {"splits": splits, "sentences": most, "tokens": tokens, **rules}
    offline = {"spec": spec, "numbers": base64.b64encode(numbers).decode("ascii")}
    write_text(folder / "index.html", render_page([described], OFFLINE_CHARACTERS, offline))


def render_page(
    described: Sequence[Mapping[str, Any]],
    characters: int,
    offline: Mapping[str, Any] | None = None,
) -> str:
    """Returns the HTML page for runs; the page makes no network requests except to the API.

    Args:
      described: the result of `Served.describe` for each run.
      characters: the maximum number of characters in a text.
      offline: the model to embed, for a single run: `spec` and base64-encoded `numbers` from
        `bridges.browser.make_page_data`.
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
    """Returns a one-line description of a run's model."""
    count, step = len(run["steps"]), f"step {run['steps'][-1]:,}"
    weights = step if count == 1 else f"mean of {count} checkpoints up to {step}"
    return f"{REGISTRY[run['task']].model_noun}, {weights}"
