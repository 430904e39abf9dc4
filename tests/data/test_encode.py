"""A corpus is encoded pair by pair, once: its cache is whole, made again, or refused."""

import os
import shutil

import numpy as np
import pytest

from configs import base
from pair_corpus import prepare_corpus
from source_settings import refused
from transformer.data.pairs import Pair
from transformer.data.parallel import corpus as pipeline
from transformer.errors import UserError
from transformer.tasks.translation import load_tokenizers, save_tokenizers

PAIRS = [Pair(f"a{'bcde'[i % 4]} {'x ' * (i % 7)}y", f"u{'vw'[i % 2]} {i}") for i in range(41)]


def settings(tmp_path, **changes):
    config = base.get_config()
    config.data.cache_dir = str(tmp_path)
    config.tokenizer.kind = "char"
    config.tokenizer.vocab_size = 40
    config.update_from_flattened_dict(changes)
    return config.data, config.tokenizer


def sentences(corpus) -> list[tuple[str, str]]:
    return [
        (corpus.source_tokenizer.decode(s), corpus.target_tokenizer.decode(t))
        for s, t in zip(corpus.source, corpus.target, strict=True)
    ]


@pytest.mark.parametrize("joint", [True, False])
def test_the_corpus_is_the_text_pair_by_pair(joint, tmp_path):
    corpus = prepare_corpus(PAIRS, *settings(tmp_path, **{"tokenizer.joint": joint}))
    assert sentences(corpus) == [pair[:2] for pair in PAIRS]
    assert (corpus.source_tokenizer.model == corpus.target_tokenizer.model) == joint
    assert corpus.report.kept == len(PAIRS)
    assert corpus.unknown_fraction == 0


def test_a_second_start_reads_the_cache_and_gets_the_same(tmp_path, monkeypatch):
    limits = settings(tmp_path, **{"data.max_tokens": 12})
    first = prepare_corpus(PAIRS, *limits)
    assert first.report.counts["too_many_tokens"]

    def never(*args):
        raise AssertionError("encoded again")
        yield

    monkeypatch.setattr(pipeline, "_parallel_parts", never)
    second = prepare_corpus(PAIRS, *limits)
    assert sentences(second) == sentences(first)
    assert (second.report, second.unknown_fraction) == (first.report, first.unknown_fraction)
    for changed, changes in ((PAIRS[1:], {}), (PAIRS, {"data.max_tokens": 13})):
        with pytest.raises(AssertionError, match="encoded again"):
            prepare_corpus(changed, *settings(tmp_path, **{"data.max_tokens": 12, **changes}))


def test_what_a_killed_process_left_in_the_cache_is_no_harm(tmp_path, monkeypatch):
    saved = []
    save = np.save

    def killed(*args):
        saved.append(args)
        if len(saved) == 3:
            raise KeyboardInterrupt
        save(*args)

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            prepare_corpus(PAIRS, *settings(tmp_path))
    assert not list(tmp_path.glob("*.tokens"))
    # A kill that cannot be caught leaves a folder of another name.
    (tmp_path / "tmpabc").mkdir()
    save(tmp_path / "tmpabc" / "source.npy", np.zeros(3))
    assert sentences(prepare_corpus(PAIRS, *settings(tmp_path))) == [p[:2] for p in PAIRS]


@pytest.mark.parametrize("initial", ["keep", "grow"])
def test_a_run_goes_on_with_two_equal_tokenizers_of_another_run(initial, tmp_path):
    old, run = tmp_path / "old", tmp_path / "run"
    same = [Pair(f"{s} {t}", f"{s} {t}") for s, t, *_ in PAIRS]
    two = {"tokenizer.joint": False}
    first = prepare_corpus(same, *settings(tmp_path, **two))
    old.mkdir()
    save_tokenizers(old, first.source_tokenizer, first.source_tokenizer)
    assert [path.name for path in old.glob("*.model")] == ["tokenizer.model"]
    keys = settings(tmp_path, **two, **{"tokenizer.initial": initial, "tokenizer.vocab_size": 99})
    begun = prepare_corpus(PAIRS, *keys, folder=run, initial=old)
    assert begun.source_tokenizer.model == begun.target_tokenizer.model
    run.mkdir()
    save_tokenizers(run, begun.source_tokenizer, begun.target_tokenizer)
    shutil.rmtree(old)
    again = prepare_corpus(PAIRS, *keys, folder=run, initial=old)
    assert sentences(again) == [pair[:2] for pair in PAIRS]
    assert all(map(np.array_equal, again.target, begun.target))
    assert load_tokenizers(run)[1].model == begun.target_tokenizer.model
    # The control: another text needs the other run.
    with pytest.raises(UserError, match=r"tokenizer\.model is missing"):
        prepare_corpus([Pair(s, f"{t}u") for s, t, *_ in PAIRS], *keys, folder=run, initial=old)


def test_two_processes_may_encode_the_same_text(tmp_path, monkeypatch):
    rename = os.rename
    prepare_corpus(PAIRS, *settings(tmp_path, **{"data.max_tokens": 127}))  # trains the tokenizer

    def overtaken(*args):
        monkeypatch.undo()
        prepare_corpus(PAIRS, *settings(tmp_path))  # the other process, just before
        return rename(*args)

    monkeypatch.setattr(os, "rename", overtaken)
    assert sentences(prepare_corpus(PAIRS, *settings(tmp_path))) == [p[:2] for p in PAIRS]
    assert len(list(tmp_path.glob("*.tokens"))) == 2


def test_pairs_with_too_many_tokens_are_dropped_and_counted(tmp_path):
    pairs = [Pair("a " * n, "b " * m) for n, m in ((4, 5), (5, 4), (4, 4), (6, 6), (1, 3))]
    limits = {"data.max_tokens": 5, "tokenizer.kind": "word"}
    corpus = prepare_corpus(pairs, *settings(tmp_path, **limits))
    # Four words and the end are five tokens.
    assert sentences(corpus) == [("a a a a", "b b b b"), ("a", "b b b")]
    assert (corpus.report.total, corpus.report.kept) == (5, 2)
    assert corpus.report.counts["too_many_tokens"] == 3


def test_too_many_unknown_tokens_are_refused_with_the_share_and_the_fix(tmp_path):
    # Of the words of each pair, "a" and "b", one has no place: five are 4 special ones and one.
    pairs = [Pair("a a b", "a")] * 2
    limits = {"tokenizer.kind": "word", "tokenizer.vocab_size": 5, "data.remove_duplicates": False}
    says = "25.0% of the training tokens are unknown", "data.max_oov_rate=1.0%"
    with refused(*says, "raise config.tokenizer.vocab_size"):
        prepare_corpus(pairs, *settings(tmp_path, **limits))
    limits["data.max_oov_rate"] = 0.25
    for _ in range(2):  # the second reads the cache
        corpus = prepare_corpus(pairs, *settings(tmp_path, **limits))
        assert corpus.unknown_fraction == 0.25


def test_pairs_of_named_held_out_text_that_occur_in_the_training_text_are_counted(tmp_path):
    held_out = {
        "validation": [PAIRS[3], Pair(f" {PAIRS[5].source} ", PAIRS[5].target), Pair("c", " ")],
        "test": [Pair("neu", "new"), Pair(PAIRS[3].source, "other")],
    }
    found = prepare_corpus(PAIRS, *settings(tmp_path), held_out=held_out).held_out
    line = "validation: 2 of 3 pairs occur in the training text"
    assert found["validation"].describe("validation") == [line]
    assert found["validation"].counts() == {"of them in the training text": 2}
    assert (found["test"].describe("test"), found["test"].counts()) == ([], {})
