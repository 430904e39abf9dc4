"""Files that several export formats share, and code that translates without this project."""

import importlib
import json
import tomllib
from pathlib import Path
from typing import Any

from transformer.data.characters import NEVER_SEEN
from transformer.data.tokenizer import BOS_ID, EOS_ID, PAD_ID
from transformer.errors import UserError
from transformer.files import write_text
from transformer.inference.translator import Translator

TEXTS = tomllib.loads(Path(__file__).with_name("cards.toml").read_text("utf-8"))


def usage_of(name: str) -> str:
    """Returns the text of a model card on how to use a format without this project."""
    code = TEXTS["decoder"].get(name)
    text = TEXTS["greedy"].format(**code) if code else TEXTS["usage"][name]
    never_seen = NEVER_SEEN.pattern.encode("unicode_escape").decode()
    return text + TEXTS["sentences"].format(never_seen=never_seen)


def needed_package(name: str) -> Any:
    """Imports a package that only one export format needs; raises UserError if it is missing."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise UserError(f"this format needs a package: pip install {name}") from None


def write_tokenizers(predictor: Translator, folder: Path) -> None:
    """Writes the source and target sentencepiece models to a folder."""
    (folder / "source.spm").write_bytes(predictor.source_tokenizer.model)
    (folder / "target.spm").write_bytes(predictor.target_tokenizer.model)


def write_unsealed_json(path: Path, value: Any) -> None:
    """Writes a JSON file without the seal that a run's own files have."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_files(predictor: Translator, folder: Path, **more: Any) -> None:
    """Writes the sentencepiece models, the special token ids, and the length limits.

    A translation of n source tokens has at most max_ratio * n + max_extra tokens, and source and
    translation each have at most max_length tokens. Lengths include end-of-sentence.

    Args:
      more: additional values that the format stores in about.json.
    """
    write_tokenizers(predictor, folder)
    decode = predictor.decode
    about = {
        **{"pad_id": PAD_ID, "bos_id": BOS_ID, "eos_id": EOS_ID},
        **{"max_ratio": decode.max_ratio, "max_extra": decode.max_extra},
        "max_length": predictor.max_length,
    }
    write_unsealed_json(folder / "about.json", about | more)
