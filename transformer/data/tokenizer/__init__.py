"""Subword tokenizers: text to ids and back, and their training."""

from transformer.data.tokenizer.adopt import adopt_tokenizer, check_models
from transformer.data.tokenizer.ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer.data.tokenizer.model import (
    KINDS,
    NEVER_WRITTEN,
    Ids,
    Tokenizer,
    load_tokenizer,
    save_tokenizer,
)
from transformer.data.tokenizer.sampling import check_sampling
from transformer.data.tokenizer.symbols import check_symbols, with_symbols
from transformer.data.tokenizer.train import (
    BYTE_KINDS,
    BYTES,
    INITIAL,
    NORMALIZATIONS,
    train_tokenizer,
)

__all__ = [
    "BOS_ID",
    "BYTES",
    "BYTE_KINDS",
    "EOS_ID",
    "INITIAL",
    "KINDS",
    "NEVER_WRITTEN",
    "NORMALIZATIONS",
    "PAD_ID",
    "UNK_ID",
    "Ids",
    "Tokenizer",
    "adopt_tokenizer",
    "check_models",
    "check_sampling",
    "check_symbols",
    "load_tokenizer",
    "save_tokenizer",
    "train_tokenizer",
    "with_symbols",
]
