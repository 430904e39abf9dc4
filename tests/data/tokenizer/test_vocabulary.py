"""A vocabulary has a size that works, and no letter of a text is lost to it."""

import itertools
import random
import re

import pytest
from test_tokenizer import make

from configs import own_text
from source_settings import refused
from transformer.data.tokenizer import UNK_ID
from transformer.data.tokenizer.train import BYTE_KINDS, BYTES, train_tokenizer


@pytest.mark.parametrize(("size", "reason"), [(5000, "too high"), (10, "required_chars. 10 vs 38")])
def test_a_vocabulary_that_the_text_does_not_allow_is_refused(size, reason, tmp_path):
    keys = f"tokenizer.vocab_size={size} and config.tokenizer.character_coverage=1.0"
    with refused(keys, reason):
        make(tmp_path, vocab_size=size)


# -- no letter is lost

COMMON = ["die katze sieht den hund", "der hund sieht die katze nicht"] * 800
RARE = ["How are you? 42 (37%)", "Quelle: Šárka Říhová & Úřad; Xaver!"]
UNSEEN = ["日本語", "привет, мир", "🚀 \U0001f1e8\U0001f1ff", "ﷺ", "a\u200cb", "\u05d0\u05d1"]


@pytest.mark.parametrize("kind", BYTE_KINDS)
def test_own_text_loses_no_letter_neither_of_the_training_text_nor_typed_later(kind, tmp_path):
    settings = own_text.get_config().tokenizer
    settings.update({"vocab_size": 307, "kind": kind, "normalization": "identity"})
    tokenizer = train_tokenizer([*COMMON, *RARE], settings, tmp_path, "rare")
    texts = [*COMMON[:2], *RARE, *UNSEEN]
    encoded = tokenizer.encode(texts)
    assert UNK_ID not in itertools.chain(*encoded)
    assert [tokenizer.decode(ids) for ids in encoded] == texts
    # Letters, digits and signs of the text are pieces; only others are spelt in bytes.
    spelt = [any(map(is_byte, tokenizer.pieces(ids))) for ids in encoded]
    assert spelt == [False] * 4 + [True] * len(UNSEEN)


def is_byte(piece: str) -> bool:
    return re.fullmatch("<0x[0-9A-F]{2}>", piece) is not None


# As Chinese: 1,260 characters, most of them rare.
DRAW = random.Random(0).randrange
HAN = ["".join(chr(0x4E00 + DRAW(60)) for _ in range(10)) for _ in range(6000)]
HAN += [chr(0x5000 + i) for i in range(1200)]


@pytest.mark.full
@pytest.mark.parametrize(("kind", "size"), [("bpe", 1300), ("unigram", 2000)])
def test_a_text_of_many_characters_leaves_room_for_longer_pieces(kind, size, tmp_path):
    texts = HAN + COMMON  # with English, 1,300 pieces cannot hold the characters
    tokenizer = make(tmp_path, texts, kind=kind, vocab_size=size, byte_fallback=True)
    pieces = tokenizer.pieces(range(260, tokenizer.vocab_size))
    assert {"▁hund", *"acdehiknrstuz"} <= set(pieces)
    assert (size - BYTES) // 2 - 5 <= sum(len(p) == 1 for p in pieces) <= (size - BYTES) // 2
    encoded = tokenizer.encode(texts)
    assert UNK_ID not in itertools.chain(*encoded)
    assert [tokenizer.decode(ids) for ids in encoded] == texts
    # The control: without bytes, characters that have no piece are refused.
    with refused("required_chars"):
        make(tmp_path, texts, kind=kind, vocab_size=1100)
