"""The page to type into: it asks a server, or a model that it holds itself."""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.attention.explorer import live_values
from experiments.display import web_page

PAGE_TEXTS = {
    "translation": ("translator", "Type to translate"),
    "language_model": ("language model", "Type to continue"),
    "classification": ("classifier", "Type to classify"),
    "image_classification": ("classifier of pictures", "Drop a picture"),
    "visual_question_answering": ("model of pictures and questions", "Ask about a picture"),
}


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
    tasks = {run["task"] for run in described}
    writing = [run["max_best"] for run in described if "classify" not in run["operations"]]
    return web_page.render(
        "serve.html",
        title=" and ".join(run["name"] for run in described),
        heading=PAGE_TEXTS[tasks.pop()][1] if len(tasks) == 1 else "Type to try the models",
        about={run["name"]: _about(run) for run in described},
        runs=described,
        tags=list(tags),
        best=max(writing, default=0),
        inputs={name for run in described for name in run["inputs"]},
        characters=characters,
        data=live_values(),
        offline=offline,
    )


def _about(run: Mapping[str, Any]) -> str:
    """A line about a run."""
    count, step = len(run["steps"]), f"step {run['steps'][-1]:,}"
    weights = step if count == 1 else f"mean of {count} checkpoints up to {step}"
    return f"{PAGE_TEXTS[run['task']][0]}, {weights}"
