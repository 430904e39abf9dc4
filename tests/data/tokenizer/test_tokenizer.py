"""Text survives the tokenizers, their models come from the cache, and refusals name the key."""

import functools
import itertools
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from configs import base
from source_settings import refused
from transformer.config.keys import KEYS
from transformer.data.tokenizer import (
    BOS_ID,
    EOS_ID,
    PAD_ID,
    UNK_ID,
    Tokenizer,
    save_tokenizer,
)
from transformer.data.tokenizer.train import train_tokenizer

TEXTS = [
    "Größe über Äpfel, 😀 natürlich!",
    "Die Straße ist naß.",
    "An apple a day keeps the doctor away 🚀",
    "eins zwei drei vier",
]
CHARACTERS = 34  # in TEXTS, with '▁' for the space


def make(tmp_path: Path, texts=TEXTS, content="texts", count=0, saved=None, **changes) -> Tokenizer:
    settings = base.get_config().tokenizer.copy_and_resolve_references()
    settings.update({"vocab_size": CHARACTERS + 7, "kind": "bpe", **changes})
    return train_tokenizer(texts, settings, tmp_path, content, count=count, saved=saved)


@pytest.mark.parametrize("kind", KEYS["tokenizer.kind"].choices)
def test_text_with_umlauts_and_emoji_comes_back_from_its_ids(kind, tmp_path):
    tokenizer = make(tmp_path, kind=kind)
    ids = tokenizer.encode(TEXTS)
    assert [tokenizer.decode(row) for row in ids] == TEXTS
    assert UNK_ID not in itertools.chain(*ids)
    # What the training text never had is unknown and does not come back.
    [strange] = tokenizer.encode(["日本"])
    assert UNK_ID in strange
    assert tokenizer.decode(strange) != "日本"


@pytest.mark.parametrize("kind", KEYS["tokenizer.kind"].choices)
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


def test_decoding_stops_at_the_first_end_and_skips_padding(tmp_path):
    tokenizer = make(tmp_path)
    first, second = tokenizer.encode(TEXTS[:2])
    assert tokenizer.decode([BOS_ID, *first, PAD_ID, EOS_ID, *second, EOS_ID]) == TEXTS[0]
    assert tokenizer.decode([*first, *second]) != TEXTS[0]
    assert tokenizer.decode([EOS_ID, *first]) == ""


def sampled_digest(folder: str) -> str:
    """The digest of a tokenizer that is trained on a sample of a text."""
    rng = random.Random(7)
    words = ["".join(rng.choices("abcdefgh", k=rng.randrange(2, 9))) for _ in range(300)]
    texts = [" ".join(rng.choices(words, k=6)) for _ in range(1000)]
    changes = {"max_sentences": 100, "vocab_size": 90}
    return make(Path(folder), texts, **changes, count=len(texts)).digest


@pytest.mark.full
def test_every_process_draws_the_same_sample_and_so_trains_the_same_tokenizer(tmp_path):
    code = (
        'import sys; sys.path[:0] = ["tests/support", "tests/data/tokenizer", "tests", "."]; '
        "import test_tokenizer as t; "
        "print(t.sampled_digest(sys.argv[1]))"
    )
    run = functools.partial(subprocess.run, capture_output=True, text=True, check=True)
    found = {
        run(
            [sys.executable, "-c", code, str(tmp_path / seed)],
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert found == {sampled_digest(str(tmp_path / "4"))}


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


@pytest.mark.parametrize("damage", ["model", "note", "no model"])
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


def test_a_text_of_one_endless_line_is_refused_with_the_longest_that_is_read(tmp_path):
    texts = ["", "a b " * 500_000]
    with refused("lines of up to 4,192 bytes"):
        make(tmp_path, texts)
    assert make(tmp_path, [*texts, *TEXTS])  # the control: one short line is enough
