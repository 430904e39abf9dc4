"""Files that several export formats share, and code that translates without this project."""

import importlib
import json
from pathlib import Path
from typing import Any

from transformer.data.characters import NEVER_SEEN
from transformer.data.tokenizer import BOS_ID, EOS_ID, PAD_ID
from transformer.errors import UserError
from transformer.files import write_text
from transformer.inference.translator import Translator

# Greedy decoding with truncation, as in `--mode=translate`. Each format fills in its imports, the
# code that loads its two functions, the initial state of the decoder, and a decoding step.
SENTENCES = f"""
Give one sentence per text, in NFC (`unicodedata.normalize("NFC", text)`), without invisible
characters (`re.sub(r"{NEVER_SEEN.pattern.encode("unicode_escape").decode()}", "", text)`), in
one line: a model that was trained on sentences may leave out the rest of a longer text."""
READ = (
    """```python
import json

{imports}
import numpy as np
import sentencepiece

folder = "."  # the path of this one
texts = ["A sentence.", "Another one."]

def read(name):
    with open(f"{{folder}}/{{name}}", "rb") as file:
        return file.read()

about = json.loads(read("about.json"))
source, target = (
    sentencepiece.SentencePieceProcessor(model_proto=read(f"{{side}}.spm"))
    for side in ("source", "target")
)
{load}
longest, end = about["max_length"], about["eos_id"]
rows = [source.encode(text)[: longest - 1] + [end] for text in texts]
batch = np.full((len(rows), max(map(len, rows))), about["pad_id"], np.int32)
for row, ids in zip(batch, rows):
    row[: len(ids)] = ids

ratio, extra = about["max_ratio"], about["max_extra"]
limits = [min(int(ratio * len(ids) + extra), longest) - 1 for ids in rows]
tokens = [np.full(len(rows), about["bos_id"], np.int32)]
{start}
while len(tokens) <= max(limits) and not np.any(np.stack(tokens) == end, axis=0).all():
{step}
    tokens.append(logits.argmax(-1).astype(np.int32))

for ids, limit in zip(np.stack(tokens[1:], axis=1).tolist(), limits):
    print(target.decode(ids[: [*ids[:limit], end].index(end)]))
```

Logits of tokens that no text has are -inf.
"""
    + SENTENCES
)


def needed_package(name: str) -> Any:
    """Imports a package that only one export format needs.

    Raises:
      UserError: the package is not installed.
    """
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
