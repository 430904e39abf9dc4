"""A vocabulary that grows keeps all ids, and a text is cut as before and then joined further."""

import pytest

# protobuf makes these classes when they are imported.
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from configs import base
from transformer.data.tokenizer import EOS_ID, load_tokenizer, save_tokenizer
from transformer.data.tokenizer.train import grown_model, train_tokenizer

OLD = ["the cat sat on the mat", "a cat and a rat sat", "that rat ate the oat", "the hat"] * 3
NEW = ["photon and proton", "the proton spectrum", "a spectrum of photons: ω", "protons emit"] * 3
SIZE = {"bpe": 30, "unigram": 21, "word": 20}


def settings(**changes):
    config = base.get_config().tokenizer.copy_and_resolve_references()
    config.update(changes)
    return config


@pytest.fixture(params=[("bpe", False), ("unigram", True), ("word", False)], ids=str)
def old(request, tmp_path):
    """The file of a tokenizer of the old text, and its settings."""
    kind, fallback = request.param
    own = settings(kind=kind, byte_fallback=fallback, vocab_size=SIZE[kind] + 256 * fallback)
    save_tokenizer(tmp_path / "old.model", train_tokenizer(OLD, own, tmp_path, "old"))
    return tmp_path / "old.model", own


def start(old, tmp_path, content="new", texts=NEW, saved=None, **changes):
    path, own = old
    own = settings(**{**own.to_dict(), **changes})
    return train_tokenizer(texts, own, tmp_path, content, initial=path, saved=saved)


def pieces(tokenizer):
    return tokenizer.pieces(range(tokenizer.vocab_size))


def scores(tokenizer):
    return [piece.score for piece in ModelProto.FromString(tokenizer.model).pieces]


def ends(tokenizer, text):
    """Where tokens start in a text."""
    return set(tokenizer.starts([text])[0])


def test_old_pieces_keep_ids_and_scores_and_new_ones_follow(old, tmp_path):
    before = load_tokenizer(old[0])
    grown = start(old, tmp_path, initial="grow", vocab_size=before.vocab_size + 15)
    assert pieces(grown)[: before.vocab_size] == pieces(before)
    assert scores(grown)[: before.vocab_size] == scores(before)
    added = set(pieces(grown)[before.vocab_size :])
    assert 5 < len(added) <= 15
    assert len(set(pieces(grown))) == grown.vocab_size
    assert grown.kind == before.kind
    # The new text has fewer tokens, or fewer that are unknown.
    assert grown.encode(NEW) != before.encode(NEW)
    if grown.kind == "bpe":
        assert max(scores(grown)[before.vocab_size :]) < min(scores(before))


def test_what_the_old_text_was_cut_into_is_only_joined(old, tmp_path):
    before = load_tokenizer(old[0])
    grown = start(old, tmp_path, initial="grow", vocab_size=before.vocab_size + 15)
    if grown.kind == "unigram":  # whose cut is the most probable of all
        return
    for text in OLD:
        assert ends(grown, text) <= ends(before, text)
    untouched = [t for t in OLD if max(grown.encode([t])[0]) < before.vocab_size]
    assert grown.encode(untouched) == before.encode(untouched)
    if grown.kind == "bpe":
        assert any(ends(grown, text) < ends(before, text) for text in NEW)
    assert all(grown.decode(ids) == text for ids, text in zip(grown.encode(OLD), OLD, strict=True)
               if grown.kind != "word")  # fmt: skip


def test_a_model_has_no_piece_that_it_never_makes(tmp_path):
    # "abcd" of "ab" and "cd" is out of reach where "bc" is merged first.
    def model(*merges):
        proto = ModelProto.FromString(base_model)
        del proto.pieces[EOS_ID + 1 :]
        for i, piece in enumerate([*merges, *"abcd▁"]):
            proto.pieces.add(piece=piece, score=-float(i))
        return proto.SerializeToString()

    base_model = train_tokenizer(["a b c d"], settings(vocab_size=10), tmp_path, "x").model
    grown = grown_model(model("bc"), model("ab", "cd", "abcd", "da"), 20)
    added = [piece.piece for piece in ModelProto.FromString(grown).pieces][10:]
    assert added == ["ab", "cd", "da"]
    # Control: with no such merge it is within reach.
    grown = grown_model(model("da"), model("ab", "cd", "abcd"), 20)
    assert [piece.piece for piece in ModelProto.FromString(grown).pieces][10:] == [
        "ab",
        "cd",
        "abcd",
    ]


def test_a_tokenizer_that_is_kept_is_the_same_model_whatever_the_other_keys_say(old, tmp_path):
    kept = start(old, tmp_path, initial="keep", vocab_size=9, character_coverage=0.99)
    assert kept.model == load_tokenizer(old[0]).model
    own = start((None, old[1]), tmp_path, initial="new", texts=OLD, content="old")
    assert own.model == kept.model  # from the cache, as without the key
