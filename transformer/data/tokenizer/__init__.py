"""Subword tokenizers: text to ids and back, and their training."""

from transformer.data.tokenizer.draws import UNK_ID, check_sampling
from transformer.data.tokenizer.model import (
    BOS_ID,
    EOS_ID,
    KINDS,
    NEVER_WRITTEN,
    PAD_ID,
    RESERVED,
    Ids,
    Tokenizer,
    adopt_tokenizer,
    check_models,
    check_symbols,
    load_tokenizer,
    save_tokenizer,
    with_symbols,
)
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
    "RESERVED",
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
