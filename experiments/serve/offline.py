"""A page that holds a translator: it translates and shows every head without a network."""

import base64
from pathlib import Path
from typing import Any

from experiments.serve.page import render_page
from transformer.bridges import browser
from transformer.bridges.formats import Export
from transformer.data.corpora import languages_of, tags_of
from transformer.files import write_text
from transformer.inference.segments import Segmenter, segment_rules
from transformer.runs.workdir import load_config

CHARACTERS = 2_000  # of a text


def write(export: Export, folder: Path) -> None:
    """Writes the page of a run, `index.html`, into a folder."""
    config, predictor = export.config, export.predictor
    spec, numbers = browser.make_page_data(predictor, export.params)
    tags = tags_of(config.data)
    described: dict[str, Any] = {
        "name": config.name,
        "task": config.task,
        "inputs": ["text"],
        "steps": list(export.steps),
        "languages": languages_of(load_config(export.run).data),
        "operations": ["translate", "attention"],
        "max_best": config.decode.beam_size,
        "source_tags": list(tags) if any(tags) else [],
    }
    encode = predictor.source_tokenizer.encode
    segmenter = Segmenter(config, export.run, encode, spec["maxLength"])
    most, tokens = segmenter.limits
    splits = config.decode.split_sentences != "never"
    rules = segment_rules(segmenter.language, segmenter.measured.get("words", {}))
    spec["segment"] = {"splits": splits, "sentences": most, "tokens": tokens, **rules}
    offline = {"spec": spec, "numbers": base64.b64encode(numbers).decode("ascii")}
    write_text(folder / "index.html", render_page([described], CHARACTERS, offline))
