"""Generates the documentation page of all config keys from the config classes and comments."""

import math
import re
from collections.abc import Iterator
from pathlib import Path

from transformer.config.keys import KEYS, SECTIONS
from transformer.model.config import FACTS, MAX_NUMBER

ROOT = Path(__file__).parents[1]
FILES = (
    "transformer/config/keys.py",
    "transformer/model/config.py",
    "transformer/optim/__init__.py",
)
HEAD = """# Keys of a config

A config has these keys, `--config.SECTION.KEY=VALUE` on the command line. Their classes are in
[{0}](../../{0}), [{1}](../../{1}) and [{2}](../../{2}). Numbers in brackets are sections of the
paper.
"""
COLUMNS = "| key | default | range | meaning | facts |\n|---|---|---|---|---|\n"


def comments() -> Iterator[tuple[str, str, str, str]]:
    """Yields (key, comment after it, comment directly above, last comment above) for each key."""
    sections = {c.__name__: name for name, (classes, _) in SECTIONS.items() for c in classes}
    for file in FILES:
        section, above, last = None, "", ""
        for line in (ROOT / file).read_text("utf-8").splitlines():
            if head := re.match(r"class (\w+)", line):
                section, above, last = sections.get(head[1]), "", ""
            code, _, comment = line.partition("# ")
            if (name := re.match(r"    (\w+): \w+ = key\(", code)) and section is not None:
                yield f"{section}.{name[1]}".lstrip("."), comment, above.strip(), last.strip()
            above = "" if code.strip() else f"{above} {comment}"
            last = above or last


def page() -> str:
    """Returns the Markdown page: a table for each section, and the meanings of the keys' facts."""
    about = {key: own or above or f"see above: {last}" for key, own, above, last in comments()}
    text = HEAD.format(*FILES)
    for section in SECTIONS:
        text += f"\n## {section or 'of no section'}\n\n{COLUMNS}"
        for key in (key for key in KEYS if key.rpartition(".")[0] == section):
            name, facts = key.rpartition(".")[2], ", ".join(sorted(KEYS[key].facts))
            cells = f"`{name}`", f"`{KEYS[key].default!r}`", _range(key), about[key], facts
            text += f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"
    return text + "\n## Facts\n\n" + "".join(f"- {name}: {fact}.\n" for name, fact in FACTS.items())


def _range(key: str) -> str:
    if KEYS[key].range is None:
        return ""
    low, high = KEYS[key].range
    return f"≥ {low:g}" if high in (MAX_NUMBER, math.inf) else f"{low:g} to {high:g}"
