"""Symbols stay whole, and an existing sentencepiece model reads text as it did."""

import io
import logging
import random
import re

import pytest
import sentencepiece

from configs import base
from experiments.process.config import override
from transformer.data.tokenizer import adopt_tokenizer, save_tokenizer
from transformer.data.tokenizer.train import train_tokenizer
from transformer.errors import UserError

TEXTS = [
    "Größe über Äpfel, natürlich!",
    "Die Straße ist naß.",
    "An apple a day keeps the doctor away",
    "eins zwei drei vier",
]
SYMBOLS = ("{name}", "<URL>", "eins", "http://www.example.com", "｛x｝")
TEXT = "Hallo {name}, die<URL>s an ｛x｝ und xhttp://www.example.comy zweieins"


def settings(**changes):
    tokenizer = base.get_config().tokenizer
    tokenizer.vocab_size, tokenizer.byte_fallback = 298, True
    tokenizer.update(changes)
    return tokenizer


@pytest.mark.parametrize("kind", ["bpe", "unigram", "char"])
def test_symbols_are_one_piece_and_come_back_within_words_too(kind, tmp_path):
    given = settings(kind=kind, symbols=SYMBOLS, normalization="nmt_nfkc_cf")
    tokenizer = train_tokenizer(TEXTS, given, tmp_path, "texts")
    wholes = [tokenizer.encode([TEXT])[0]]
    if kind != "char":
        text, strength = tokenizer.normalize(TEXT), {"bpe": 1.0, "unigram": 0.01}[kind]
        uniform = random.Random(0).random
        wholes += [tokenizer.sample(text, strength, uniform) for _ in range(50)]
    for ids in wholes:
        pieces = tokenizer.pieces(ids)
        assert [piece for piece in pieces if piece in SYMBOLS] == [
            "{name}", "<URL>", "｛x｝", "http://www.example.com", "eins"
        ]  # fmt: skip
        if kind != "char":  # which lacks letters
            assert tokenizer.decode(ids) == TEXT.lower().replace("<url>", "<URL>")


@pytest.mark.parametrize("symbols", [("",), ("a", "a"), ("a b",), ("<pad>",)])
def test_a_symbol_that_cannot_be_is_refused_in_one_line(symbols, tmp_path):
    with pytest.raises(UserError, match=f"symbols has {symbols[0]!r}: .* without blanks") as error:
        train_tokenizer(TEXTS, settings(symbols=symbols), tmp_path, "texts")
    assert "\n" not in str(error.value)


def foreign(path, kind: str) -> sentencepiece.SentencePieceProcessor:
    """A model with sentencepiece's own ids, written to a file."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=model, model_type=kind, vocab_size=45,
        minloglevel=2, hard_vocab_limit=False,
    )  # fmt: skip
    path.write_bytes(model.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


@pytest.mark.parametrize("kind", ["unigram", "word"])
def test_an_adopted_model_reads_as_the_original_with_the_ids_of_every_vocabulary(
    kind, tmp_path, caplog
):
    path = tmp_path / "their.model"
    original = foreign(path, kind)
    with caplog.at_level(logging.INFO):
        tokenizer = adopt_tokenizer(str(path), settings())
    assert "tokenizer.vocab_size=298" in caplog.text
    assert tokenizer.kind == kind
    assert tokenizer.pieces(range(4)) == ["<pad>", "<unk>", "<s>", "</s>"]
    assert tokenizer.vocab_size == original.vocab_size() + 1  # the pad
    for text, ids in zip(TEXTS, tokenizer.encode(TEXTS), strict=True):
        pieces = original.encode(text, out_type=str)
        assert tokenizer.pieces(ids) == pieces
        assert tokenizer.decode(ids) == original.decode(original.encode(text))
    if kind != "word":
        own = adopt_tokenizer(str(path), settings(symbols=("{name}",)))
        assert own.vocab_size == tokenizer.vocab_size + 1
        assert "{name}" in own.pieces(own.encode(["x{name}y"])[0])


def test_a_run_needs_no_original(tmp_path):
    path, run = tmp_path / "their.model", tmp_path / "tokenizer.model"
    foreign(path, "bpe")
    tokenizer = adopt_tokenizer(str(path), settings())
    save_tokenizer(run, tokenizer)
    path.unlink()
    assert adopt_tokenizer(str(path), settings(), run).model == tokenizer.model
    with pytest.raises(FileNotFoundError, match=re.escape(str(path))):
        adopt_tokenizer(str(path), settings())


@pytest.mark.parametrize("content", [b"", "half"])
def test_a_damaged_model_is_refused_in_one_line(content, tmp_path):
    path = tmp_path / "their.model"
    foreign(path, "bpe")
    path.write_bytes(path.read_bytes()[:300] if content == "half" else content)
    with pytest.raises(UserError, match="not a sentencepiece model") as error:
        adopt_tokenizer(str(path), settings())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_new_symbols_need_a_vocabulary_that_grows(kind, tmp_path):
    old = tmp_path / "old.model"
    start = train_tokenizer(TEXTS, settings(kind=kind, symbols=("<2de>",)), tmp_path, "texts")
    save_tokenizer(old, start)
    more = {"kind": kind, "symbols": ("<2de>", "<2fr>")}

    def other(**changes):
        given = settings(**more, **changes)
        return train_tokenizer(["quatre cinq"], given, tmp_path, "new", initial=old)

    with pytest.raises(UserError, match=r"'<2fr>' of .* set config.tokenizer.initial=grow"):
        other(initial="keep")
    grown = other(initial="grow", vocab_size=start.vocab_size + 5)
    assert grown.pieces(grown.encode(["x<2fr>y <2de>"])[0]).count("<2fr>") == 1
    assert grown.pieces([start.vocab_size]) == ["<2fr>"]
    with pytest.raises(UserError, match="leaves no room"):
        other(initial="grow", vocab_size=start.vocab_size + 1)


def test_digits_are_split_if_asked(tmp_path):
    texts = [*TEXTS, *["2024 und 2025"] * 9]
    longest = {}
    for split in (False, True):
        given = settings(kind="unigram", split_digits=split, vocab_size=300)
        tokenizer = train_tokenizer(texts, given, tmp_path, "digits")
        pieces = tokenizer.pieces(tokenizer.encode(["2024"])[0])
        longest[split] = max(sum(c.isdigit() for c in piece) for piece in pieces)
    assert longest[False] > longest[True] == 1


def test_symbols_are_set_on_the_command_line():
    config = base.get_config()
    override(config, "tokenizer.symbols", "{name}, <URL>,[1],(c),'")
    assert config.tokenizer.symbols == ("{name}", "<URL>", "[1]", "(c)", "'")
    override(config, "tokenizer.symbols", "")
    assert config.tokenizer.symbols == ()
