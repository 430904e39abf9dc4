"""Subword tokenizers, trained by sentencepiece on the experiment's own text."""

import hashlib
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import sentencepiece
from jaxtyping import Int
from sentencepiece.sentencepiece_pb2 import SentencePieceText

from transformer.errors import RunError, UserError
from transformer.files import write_bytes

PAD, UNKNOWN, BEGIN, END = 0, 1, 2, 3  # the same ids in every vocabulary
Ids = Sequence[int] | Int[np.ndarray, "_"]  # token ids of one sentence
KINDS = ("bpe", "unigram", "word", "char")
# What lets `decode` give back every blank and every end of a line.
EXACT = {
    "remove_extra_whitespaces": False,
    "add_dummy_prefix": False,
    "user_defined_symbols": ["\n", "\t"],
    "max_sentence_length": 2**20,  # bytes; longer lines teach nothing
}
NORMALIZATIONS = ("nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity")


class Tokenizer:
    """Turns raw text into token ids and back.

    Args:
      model: a serialised sentencepiece model.
    """

    def __init__(self, model: bytes):
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.vocab_size: int = self._processor.vocab_size()

    @property
    def digest(self) -> str:
        """The model's fingerprint, 16 hexadecimal digits."""
        return hashlib.sha256(self.model).hexdigest()[:16]

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text, without begin or end."""
        return self._processor.encode(list(texts))

    def decode(self, ids: Ids) -> str:
        """Returns the text of ids up to the first end-of-sentence."""
        kept = []
        for token in ids:
            if token == END:
                break
            if token not in (PAD, BEGIN):
                kept.append(int(token))
        return self._processor.decode(kept)

    def pieces(self, ids: Ids) -> list[str]:
        """Returns the tokens as text, for people to read; '▁' begins a word."""
        return [self._processor.id_to_piece(int(token)) for token in ids]

    def starts(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns where each token starts in its text, in characters from zero.

        A token that begins a word starts at the blank before it.
        """
        return [
            _starts(text, SentencePieceText.FromString(encoded))
            for text, encoded in zip(
                texts, self._processor.encode(list(texts), out_type="serialized_proto"), strict=True
            )
        ]


def _starts(text: str, encoded: SentencePieceText) -> list[int]:
    """The characters at which tokens start; sentencepiece tells the bytes."""
    bytes_before = np.cumsum([0, *(len(character.encode()) for character in text)])
    return np.searchsorted(bytes_before, [piece.begin for piece in encoded.pieces]).tolist()


def save_model(path: Path, model: bytes) -> None:
    """Writes a tokenizer's model, unless the file holds it already."""
    if path.exists() and path.read_bytes() == model:
        return
    # A full disk must not cost the one that is there, and with it the run.
    write_bytes(path, model)


def load_tokenizer(path: Path) -> Tokenizer:
    """Returns the tokenizer of a file.

    Raises:
      UserError: the file is missing or is no tokenizer.
    """
    if not path.exists():
        raise UserError(
            f"{path} is missing: a checkpoint cannot be read without its tokenizer; put "
            "back the file that was written with it"
        )
    try:
        if not (model := path.read_bytes()):  # which sentencepiece would take
            raise RuntimeError
        return Tokenizer(model)
    except RuntimeError:
        raise UserError(f"{path} is no sentencepiece model: put back the original") from None


def train_tokenizer(texts: Iterable[str], settings, cache_dir: Path, content: str) -> Tokenizer:
    """Returns a tokenizer trained on `texts`, from the cache where it was trained before.

    Args:
      texts: raw sentences; read only where the cache has no tokenizer for them, and a second time
        to explain a refusal.
      settings: `config.tokenizer`.
      content: fingerprint of `texts`.

    Raises:
      UserError: the kind is unknown, or the vocabulary's size does not suit the text.
    """
    if settings.kind not in KINDS:
        raise UserError(
            f"tokenizer.kind='{settings.kind}' is unknown: choose one of {', '.join(KINDS)}"
        )
    key = repr(sorted(settings.items())) + content + sentencepiece.__version__
    cached = cache_dir / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.model"
    if not cached.exists():
        model = _train(texts, settings, settings.kind)
        cached.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(cached, model)
    return Tokenizer(cached.read_bytes())


def _train(texts: Iterable[str], settings, kind: str) -> bytes:
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=model,
            model_type=kind,
            vocab_size=settings.vocab_size,
            character_coverage=settings.character_coverage,
            normalization_rule_name=settings.normalization,
            input_sentence_size=settings.max_sentences,
            pad_id=PAD,
            unk_id=UNKNOWN,
            bos_id=BEGIN,
            eos_id=END,
            **(EXACT if settings.keep_spaces else {}),
            # A word or character vocabulary is what occurs, up to so many.
            hard_vocab_limit=kind in ("bpe", "unigram"),
            use_all_vocab=False,
            minloglevel=2,
        )
    except (RuntimeError, ValueError) as error:
        raise RunError(_explain(str(error), texts, settings)) from None
    return model.getvalue()


def _explain(message: str, texts: Iterable[str], settings) -> str:
    """Says which key to change where sentencepiece refuses."""
    size = settings.vocab_size
    if limit := re.search(r"value <= (\d+)", message):
        # The largest spells most sentences as a token or two, of which nothing can be learned.
        advised = max(int(limit[1]) // 2, Tokenizer(_train(texts, settings, "char")).vocab_size)
        return (
            f"tokenizer.vocab_size={size} is more than the training text allows, at most "
            f"{limit[1]}: set --config.tokenizer.vocab_size={advised}"
        )
    if limit := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return (
            f"tokenizer.vocab_size={size} is less than the characters of the training text: set "
            f"--config.tokenizer.vocab_size={limit[1]} or more, or lower "
            f"--config.tokenizer.character_coverage from {settings.character_coverage}"
        )
    if "charsmap" in message:
        return (
            f"tokenizer.normalization='{settings.normalization}' is unknown: choose one of "
            f"{', '.join(NORMALIZATIONS)}"
        )
    return f"sentencepiece could not train a tokenizer of {size} tokens: {message}"
