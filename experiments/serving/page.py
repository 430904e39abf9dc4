"""The page on which somebody types: a template, and the policy that lets only its own parts run."""

import base64
import hashlib
import re
from collections.abc import Sequence
from typing import Any

from experiments.attention.explorer import live_values
from experiments.display import web_page
from experiments.serving.operations import Served
from experiments.serving.schema import CHARACTERS

ABOUT = {
    "translation": ("translator", "Type to translate"),
    "language_model": ("language model", "Type to continue"),
    "classification": ("classifier", "Type to classify"),
}


def write_page(runs: Sequence[Served]) -> str:
    """Returns the page of some runs; it asks for nothing but their answers."""
    described = [run.describe() for run in runs]
    tags = dict.fromkeys(tag for run in described for tag in run["source_tags"])
    tasks = {run["task"] for run in described}
    writing = [run["max_best"] for run in described if run["task"] != "classification"]
    return web_page.render(
        "serve.html",
        title=" and ".join(run.name for run in runs),
        heading=ABOUT[tasks.pop()][1] if len(tasks) == 1 else "Type to try the models",
        about={run["name"]: _about(run) for run in described},
        runs=described,
        tags=list(tags),
        best=max(writing, default=0),
        characters=CHARACTERS,
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
    sources = []
    for element in ("script", "style"):
        contents = re.findall(f"<{element}>(.*?)</{element}>", text, re.DOTALL)
        digests = (hashlib.sha256(content.encode()).digest() for content in contents)
        listed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
        sources.append(f"{element}-src {listed}")
    others = "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; {'; '.join(sources)}; {others}"
