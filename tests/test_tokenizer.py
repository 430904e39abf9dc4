"""Text survives the tokenizers, their models come from the cache, and refusals name the key."""

import itertools
import re
from pathlib import Path

import pytest

from configs import base
from transformer.data import tokenizer as tokenizers
from transformer.data.tokenizer import (
    BEGIN,
    END,
    KINDS,
    NORMALIZATIONS,
    PAD,
    UNKNOWN,
    Tokenizer,
    train_tokenizer,
)
from transformer.errors import UserError

TEXTS = [
    "Größe über Äpfel, 😀 natürlich!",
    "Die Straße ist naß.",
    "An apple a day keeps the doctor away 🚀",
    "eins zwei drei vier",
]
CHARACTERS = 34  # in TEXTS, with '▁' for the space


def make(tmp_path: Path, texts=TEXTS, content="texts", **changes) -> Tokenizer:
    settings = base.get_config().tokenizer.copy_and_resolve_references()
    settings.update({"vocab_size": CHARACTERS + 7, "kind": "bpe", **changes})
    return train_tokenizer(texts, settings, tmp_path, content)


def message(tmp_path: Path, **changes) -> str:
    with pytest.raises(UserError) as error:
        make(tmp_path, **changes)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("kind", KINDS)
def test_text_with_umlauts_and_emoji_comes_back_from_its_ids(kind, tmp_path):
    tokenizer = make(tmp_path, kind=kind)
    ids = tokenizer.encode(TEXTS)
    assert [tokenizer.decode(row) for row in ids] == TEXTS
    assert UNKNOWN not in itertools.chain(*ids)
    # What the training text never had is unknown and does not come back.
    [strange] = tokenizer.encode(["日本"])
    assert UNKNOWN in strange
    assert tokenizer.decode(strange) != "日本"


@pytest.mark.parametrize("kind", KINDS)
def test_every_token_starts_where_its_text_stands(kind, tmp_path):
    text = "  Äpfel über\u00a0die\tStraße ½ eins"
    tokenizer = make(tmp_path, kind=kind)
    [starts], [ids] = tokenizer.starts([text]), tokenizer.encode([text])
    assert len(starts) == len(ids)
    assert starts == sorted(starts)
    spelled = [text[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)]
    assert "".join(spelled) == "".join(text.split())
    if kind == "word":
        assert spelled == text.split()
    assert tokenizer.starts([""]) == [[]]


@pytest.mark.parametrize("kind", KINDS)
def test_the_four_special_ids_are_the_same_in_every_vocabulary(kind, tmp_path):
    tokenizer = make(tmp_path, kind=kind)
    assert (PAD, UNKNOWN, BEGIN, END) == (0, 1, 2, 3)
    assert tokenizer.pieces(range(4)) == ["<pad>", "<unk>", "<s>", "</s>"]
    ids = list(itertools.chain(*tokenizer.encode(TEXTS)))
    assert min(ids) > END
    assert max(ids) < tokenizer.vocab_size


def test_text_that_spells_a_special_token_does_not_become_one(tmp_path):
    [ids] = make(tmp_path).encode(["</s> <pad> <s>"])
    assert not {PAD, BEGIN, END} & set(ids)


def test_decoding_stops_at_the_first_end_and_skips_padding(tmp_path):
    tokenizer = make(tmp_path)
    first, second = tokenizer.encode(TEXTS[:2])
    assert tokenizer.decode([BEGIN, *first, PAD, END, *second, END]) == TEXTS[0]
    assert tokenizer.decode([*first, *second]) != TEXTS[0]
    assert tokenizer.decode([END, *first]) == ""


def test_a_second_call_reads_the_cache_and_not_the_text(tmp_path):
    def never():
        raise AssertionError("the text was read")
        yield

    first = make(tmp_path)
    assert make(tmp_path, never()).model == first.model
    with pytest.raises(AssertionError, match="the text was read"):
        make(tmp_path, never(), content="other texts")


@pytest.mark.parametrize(
    "changes", [{"vocab_size": CHARACTERS + 9}, {"kind": "char"}, {"normalization": "nmt_nfkc_cf"}]
)
def test_other_settings_give_another_model(changes, tmp_path):
    assert make(tmp_path, **changes).digest != make(tmp_path).digest


def test_other_text_gives_another_model(tmp_path):
    other = make(tmp_path, [text.swapcase() for text in TEXTS], "swapped")
    assert other.digest != make(tmp_path).digest
    assert len(list(tmp_path.iterdir())) == 2


def test_two_processes_may_train_the_same_tokenizer(tmp_path, monkeypatch):
    rename = Path.rename

    def overtaken(path, target):
        monkeypatch.undo()
        monkeypatch.setattr(tokenizers.os, "getpid", lambda: -1)
        make(tmp_path)  # the other process, just before this one is done
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", overtaken)
    model = make(tmp_path).model
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [model]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_vocabulary_too_large_is_refused_with_one_that_works_and_the_largest(kind, tmp_path):
    text = message(tmp_path, kind=kind, vocab_size=5000)
    assert "tokenizer.vocab_size=5000 is more than" in text
    limit = int(re.search(r"at most (\d+):", text)[1])
    advised = int(re.search(r"set --config\.tokenizer\.vocab_size=(\d+)$", text)[1])
    # Half, unless that leaves no room for the characters.
    assert advised == {"bpe": limit // 2, "unigram": CHARACTERS + 4}[kind] >= limit // 2
    for size in (advised, limit):
        assert make(tmp_path, kind=kind, vocab_size=size).vocab_size == size
    message(tmp_path, kind=kind, vocab_size=limit + 1)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_vocabulary_too_small_is_refused_with_the_smallest_that_works(kind, tmp_path):
    text = message(tmp_path, kind=kind, vocab_size=10)
    assert "tokenizer.vocab_size=10 is less than" in text
    assert "lower --config.tokenizer.character_coverage from 1.0" in text
    limit = int(re.search(r"set --config.tokenizer.vocab_size=(\d+) or more", text)[1])
    assert limit == CHARACTERS + 4
    assert make(tmp_path, kind=kind, vocab_size=limit).vocab_size == limit
    message(tmp_path, kind=kind, vocab_size=limit - 1)


@pytest.mark.parametrize("kind", ["word", "char"])
def test_words_and_characters_give_as_many_tokens_as_there_are(kind, tmp_path):
    sizes = {"word": len(" ".join(TEXTS).split()), "char": CHARACTERS}
    assert make(tmp_path, kind=kind, vocab_size=5000).vocab_size == 4 + sizes[kind]


@pytest.mark.parametrize("name", NORMALIZATIONS)
def test_every_normalization_named_in_the_error_exists(name, tmp_path):
    assert make(tmp_path, normalization=name).vocab_size == CHARACTERS + 7


def test_an_unknown_normalization_or_kind_is_refused_with_the_choices(tmp_path):
    text = message(tmp_path, normalization="nmt")
    assert "tokenizer.normalization='nmt'" in text
    assert all(name in text for name in NORMALIZATIONS)
    text = message(tmp_path, kind="bpee")
    assert "tokenizer.kind='bpee'" in text
    assert all(kind in text for kind in KINDS)
