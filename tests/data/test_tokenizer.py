"""Text survives the tokenizers, their models come from the cache, and refusals name the key."""

import dataclasses
import functools
import importlib
import itertools
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from configs import base, own_text
from transformer.data.tokenizer import (
    BOS_ID,
    BYTE_KINDS,
    BYTES,
    EOS_ID,
    KINDS,
    NORMALIZATIONS,
    PAD_ID,
    UNK_ID,
    Tokenizer,
    save_tokenizer,
    train_tokenizer,
)
from transformer.data.tokenizer import train as tokenizers
from transformer.data.unknown import Lost, LostCounter
from transformer.errors import UserError
from transformer.storage import files

TEXTS = [
    "Größe über Äpfel, 😀 natürlich!",
    "Die Straße ist naß.",
    "An apple a day keeps the doctor away 🚀",
    "eins zwei drei vier",
]
CHARACTERS = 34  # in TEXTS, with '▁' for the space


def make(
    tmp_path: Path, texts=TEXTS, content="texts", count=0, saved=None, log=print, **changes
) -> Tokenizer:
    settings = base.get_config().tokenizer.copy_and_resolve_references()
    name = changes.pop("name", "the training text")
    settings.update({"vocab_size": CHARACTERS + 7, "kind": "bpe", **changes})
    return train_tokenizer(
        texts, settings, tmp_path, content, count=count, saved=saved, name=name, log=log
    )


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
    assert UNK_ID not in itertools.chain(*ids)
    # What the training text never had is unknown and does not come back.
    [strange] = tokenizer.encode(["日本"])
    assert UNK_ID in strange
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
    assert (PAD_ID, UNK_ID, BOS_ID, EOS_ID) == (0, 1, 2, 3)
    assert tokenizer.pieces(range(4)) == ["<pad>", "<unk>", "<s>", "</s>"]
    ids = list(itertools.chain(*tokenizer.encode(TEXTS)))
    assert min(ids) > EOS_ID
    assert max(ids) < tokenizer.vocab_size


def test_text_that_spells_a_special_token_does_not_become_one(tmp_path):
    [ids] = make(tmp_path).encode(["</s> <pad> <s>"])
    assert not {PAD_ID, BOS_ID, EOS_ID} & set(ids)


def test_decoding_stops_at_the_first_end_and_skips_padding(tmp_path):
    tokenizer = make(tmp_path)
    first, second = tokenizer.encode(TEXTS[:2])
    assert tokenizer.decode([BOS_ID, *first, PAD_ID, EOS_ID, *second, EOS_ID]) == TEXTS[0]
    assert tokenizer.decode([*first, *second]) != TEXTS[0]
    assert tokenizer.decode([EOS_ID, *first]) == ""


def test_a_second_call_reads_the_cache_and_not_the_text(tmp_path):
    def never():
        raise AssertionError("the text was read")
        yield

    first = make(tmp_path)
    assert make(tmp_path, never()).model == first.model
    with pytest.raises(AssertionError, match="the text was read"):
        make(tmp_path, never(), content="other texts")


def sampled_digest(folder: str) -> str:
    """The digest of a tokenizer that is trained on a sample of a text."""
    rng = random.Random(7)
    words = ["".join(rng.choices("abcdefgh", k=rng.randrange(2, 9))) for _ in range(300)]
    texts = [" ".join(rng.choices(words, k=6)) for _ in range(1000)]
    changes = {"max_sentences": 100, "vocab_size": 90}
    return make(Path(folder), texts, **changes, count=len(texts)).digest


def test_every_process_draws_the_same_sample_and_so_trains_the_same_tokenizer(tmp_path):
    code = (
        'import sys; sys.path[:0] = ["tests/support", "tests/data", "tests", "."]; '
        "import test_tokenizer as t; "
        "print(t.sampled_digest(sys.argv[1]))"
    )
    run = functools.partial(subprocess.run, capture_output=True, text=True, check=True)
    found = {
        run(
            [sys.executable, "-c", code, str(tmp_path / seed)],
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout.strip()
        for seed in ("1", "2", "3")
    }
    assert found == {sampled_digest(str(tmp_path / "4"))}


def test_a_sample_has_about_its_size_and_small_texts_are_read_whole(tmp_path, monkeypatch):
    counts = []
    train = tokenizers.sentencepiece.SentencePieceTrainer.train

    def counting(sentence_iterator, **options):
        texts = list(sentence_iterator)
        counts.append(len(texts))
        train(sentence_iterator=iter(texts), **options)

    monkeypatch.setattr(tokenizers.sentencepiece.SentencePieceTrainer, "train", counting)
    texts = TEXTS * 500
    for most in (400, 1999, 2000, 5000):
        make(tmp_path, texts, max_sentences=most, count=len(texts))
    assert counts == [pytest.approx(400, abs=90), pytest.approx(1999, abs=10), 2000, 2000]


# -- a run's own tokenizer


def test_a_runs_tokenizer_is_used_where_text_and_settings_are_its_own(tmp_path):
    run, cleared = tmp_path / "tokenizer.model", tmp_path / "cleared"
    first = make(tmp_path / "cache")
    # As if another version of sentencepiece had trained it: only the run's folder has this model.
    own = Tokenizer(make(tmp_path / "cache", vocab_size=CHARACTERS + 8).model, first.origin)
    save_tokenizer(run, own)
    assert make(cleared, saved=run).model == own.model != first.model
    assert not cleared.exists()
    for changes in ({"content": "other texts"}, {"vocab_size": CHARACTERS + 9}):
        assert make(cleared, saved=run, **changes).model != own.model


@pytest.mark.parametrize("damage", ["model", "note", "no note", "no model"])
def test_a_damaged_tokenizer_of_a_run_is_trained_again_and_repaired(damage, tmp_path):
    run, note = tmp_path / "tokenizer.model", tmp_path / "tokenizer.json"
    first = make(tmp_path / "cache")
    save_tokenizer(run, first)
    whole = run.read_bytes(), note.read_bytes()
    path = run if "model" in damage else note
    if damage.startswith("no "):
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-5] + b"\xff123\n")
    again = make(tmp_path / "cache", saved=run)
    assert again.model == first.model
    save_tokenizer(run, again)
    assert (run.read_bytes(), note.read_bytes()) == whole


# -- the cache


@pytest.mark.parametrize("damage", [b"", b"half", b"changed"])
def test_a_damaged_tokenizer_in_the_cache_is_trained_again_with_a_line(damage, tmp_path):
    lines = []
    model = make(tmp_path, log=lines.append).model
    assert lines == []
    [path] = tmp_path.iterdir()
    bad = {b"": b"", b"half": model[: len(model) // 2], b"changed": model[:99] + b"x" + model[100:]}
    path.write_bytes(bad[damage])
    assert make(tmp_path, log=lines.append).model == model
    assert lines == [f"{path} is damaged: the tokenizer is trained again"]
    assert path.read_bytes() == model
    assert make(tmp_path, log=lines.append).model == model
    assert len(lines) == 1


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
    replace, others = Path.replace, []

    def overtaken(path, target):
        monkeypatch.undo()
        monkeypatch.setattr(files.os, "getpid", lambda: -1)
        others.append(make(tmp_path).model)  # the other process, just before this one is done
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", overtaken)
    model = make(tmp_path).model
    assert others == [model]
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


# -- no letter is lost

COMMON = ["die katze sieht den hund", "der hund sieht die katze nicht"] * 800
RARE = ["How are you? 42 (37%)", "Quelle: Šárka Říhová & Úřad; Xaver!"]
UNSEEN = ["日本語", "привет, мир", "🚀 \U0001f1e8\U0001f1ff", "ﷺ", "tab\tulator", "\u05d0\u05d1"]


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


@pytest.mark.parametrize("size", [1300, 2000])
@pytest.mark.parametrize("kind", BYTE_KINDS)
def test_a_text_of_many_characters_leaves_room_for_longer_pieces(kind, size, tmp_path):
    # As Chinese and English: 1,260 characters, most of them rare. 1,300 pieces cannot hold them.
    rng = random.Random(0)
    texts = ["".join(chr(0x4E00 + rng.randrange(60)) for _ in range(10)) for _ in range(6000)]
    texts += [chr(0x5000 + i) for i in range(1200)] + COMMON
    tokenizer = make(tmp_path, texts, kind=kind, vocab_size=size, byte_fallback=True)
    pieces = tokenizer.pieces(range(260, tokenizer.vocab_size))
    assert {"▁hund", *"acdehiknrstuz"} <= set(pieces)
    assert (size - BYTES) // 2 - 5 <= sum(len(p) == 1 for p in pieces) <= (size - BYTES) // 2
    encoded = tokenizer.encode(texts)
    assert UNK_ID not in itertools.chain(*encoded)
    assert [tokenizer.decode(ids) for ids in encoded] == texts
    # The control: without bytes, characters that have no piece are refused.
    wanted = "tokenizer.vocab_size=1100 is less than the characters of the training text: set"
    assert wanted in message(tmp_path, texts=texts, kind=kind, vocab_size=1100)


def test_bytes_that_spell_no_character_decode_to_something_harmless(tmp_path):
    tokenizer = make(tmp_path, vocab_size=CHARACTERS + 4 + BYTES, byte_fallback=True)
    [ids] = tokenizer.encode(["a😀б"])
    for length in range(len(ids)):
        for part in (ids[:length], ids[length:]):
            text = tokenizer.decode(part)
            assert text.encode().decode() == text
            assert "⁇" not in text
    for byte in range(4, 4 + BYTES):
        tokenizer.decode([byte, ids[0], byte]).encode()


@pytest.mark.parametrize("kind", BYTE_KINDS)
def test_bytes_start_where_their_character_stands(kind, tmp_path):
    tokenizer = make(tmp_path, kind=kind, vocab_size=CHARACTERS + 4 + BYTES, byte_fallback=True)
    text = "eins б🛸 zwei"
    [starts], [ids] = tokenizer.starts([text]), tokenizer.encode([text])
    places = [start for start, piece in zip(starts, tokenizer.pieces(ids), strict=True)
              if is_byte(piece)]  # fmt: skip
    assert places == [5, 5, 6, 6, 6, 6]


@pytest.mark.parametrize("kind", BYTE_KINDS)
def test_too_small_a_vocabulary_for_bytes_is_one_line_with_the_smallest_that_works(kind, tmp_path):
    text = message(tmp_path, kind=kind, vocab_size=100, byte_fallback=True)
    least = CHARACTERS + 4 + BYTES
    assert text == (
        "tokenizer.vocab_size=100 is less than the characters of the training text and the 256 "
        f"bytes that spell others: set --config.tokenizer.vocab_size={least} or more, or set "
        "--config.tokenizer.byte_fallback=False"
    )
    assert make(tmp_path, kind=kind, vocab_size=least, byte_fallback=True).vocab_size == least


@pytest.mark.parametrize("kind", ["word", "char"])
def test_words_and_characters_have_no_bytes(kind, tmp_path):
    tokenizer = make(tmp_path, kind=kind, byte_fallback=True)
    assert tokenizer.kind == kind
    assert not any(map(is_byte, tokenizer.pieces(range(tokenizer.vocab_size))))


@pytest.mark.parametrize(
    ("kind", "what"),
    [("word", "3 words are not in the vocabulary: 'zwei' (3), 'drei' (2), 'vier' (1)"),
     ("char", "2 characters are not in the vocabulary: 'ß' (2), '🚀' (1)")],
)  # fmt: skip
def test_what_a_vocabulary_lacks_is_counted_and_named(kind, what, tmp_path):
    counter = LostCounter()
    texts = ["eins zwei drei zwei", "drei zwei eins vier"] if kind == "word" else ["naß ß", "e🚀n"]
    tokenizer = make(tmp_path, ["eins naen"], kind=kind)
    counter.add(tokenizer, texts, tokenizer.encode(texts))
    assert str(counter.lost()) == what
    fields = json.loads(json.dumps(dataclasses.asdict(counter.lost())))
    assert Lost.from_json(fields) == counter.lost()
    assert Lost().describe() == []


REAL = "own_text ted_ru_en transformer_base transformer_big multi30k multi30k_2cores imdb lm1b"


@pytest.mark.parametrize("name", [*REAL.split(), "tutorial_en_de"])
def test_every_config_of_real_text_spells_what_it_lacks(name):
    settings = importlib.import_module(f"configs.{name}").get_config().tokenizer
    assert settings.byte_fallback
    assert settings.kind in BYTE_KINDS
    # A text of two million characters: fewer than a hundred of them are left to the bytes.
    assert 1 - settings.character_coverage < 5e-5


# -- lines that nothing can be learned of


@pytest.mark.parametrize(("keep", "most"), [(False, "4,192"), (True, "1,048,576")])
@pytest.mark.parametrize("kind", KINDS)
def test_a_text_of_one_endless_line_is_refused_and_named(kind, keep, most, tmp_path):
    texts = ["", "a b " * 500_000]
    assert message(tmp_path, texts=texts, kind=kind, keep_spaces=keep, name="old.txt") == (
        f"old.txt: line 2 has 2,000,000 bytes, and none has up to the {most} of which a tokenizer "
        "learns: break it into lines of a sentence or a paragraph"
    )
    # The control: one short line is enough.
    assert make(tmp_path, [*texts, *TEXTS], kind=kind, keep_spaces=keep, vocab_size=42)


def test_blank_lines_alone_are_refused(tmp_path):
    wanted = "the training text has only blank lines: name a file with sentences"
    assert message(tmp_path, texts=["", "  "]) == wanted
