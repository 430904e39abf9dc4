"""The page on which somebody types: a template, and the policy that lets only its own parts run."""

import base64
import hashlib
import re
from collections.abc import Sequence
from typing import Any

from experiments.attention.explorer import live_values
from experiments.display import web_page
from experiments.serving.works import Served

TEMPLATE = "serve.html"
ABOUT = {
    "translation": ("translator", "Type to translate"),
    "language_model": ("language model", "Type to continue"),
    "classification": ("classifier", "Type to classify"),
}
SCRIPTS, STYLES = (
    re.compile(r"<script>(.*?)</script>", re.S),
    re.compile(r"<style>(.*?)</style>", re.S),
)


def write_page(runs: Sequence[Served], characters: int) -> str:
    """Returns the page of some runs; it asks for nothing but their answers.

    Args:
      characters: of the longest text.
    """
    described = [run.describe() for run in runs]
    tags = dict.fromkeys(tag for run in described for tag in run["source_tags"])
    tasks = {run["task"] for run in described}
    writing = [run["max_best"] for run in described if run["task"] != "classification"]
    return web_page.render(
        TEMPLATE,
        title=" and ".join(run.name for run in runs),
        heading=ABOUT[tasks.pop()][1] if len(tasks) == 1 else "Type to try the models",
        about={run["name"]: _about(run) for run in described},
        runs=described,
        tags=list(tags),
        best=max(writing, default=0),
        characters=characters,
        data=live_values(),
    )


def _about(run: dict[str, Any]) -> str:
    """A line about a run."""
    *others, last = run["steps"]
    step = f"step {last:,}"
    if others:
        step = f"mean of {len(others) + 1} checkpoints up to {step}"
    return f"{ABOUT[run['task']][0]}, {step}"


def policy(text: str) -> str:
    """Returns the Content-Security-Policy of a page: its scripts and styles alone, by digest."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {_digests(SCRIPTS, text)}",
            f"style-src {_digests(STYLES, text)}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _digests(element: re.Pattern[str], text: str) -> str:
    found = (hashlib.sha256(content.encode()).digest() for content in element.findall(text))
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in found)
