"""A model writes what its targets have and reads more tolerantly; one rule of white space."""

import unicodedata

import pytest

from configs import base
from pair_corpus import prepare_corpus
from transformer.data.pairs import Pair
from transformer.errors import UserError
from transformer.tasks import pair_text
from transformer.tasks.pair_scores import refuse_blank
from transformer.tasks.translation import load_tokenizers, save_tokenizers

# Each has characters that sentencepiece's nmt_nfkc changes.
TARGETS = (
    *(
        "P，N V O。",
        "真的吗？是！",
        "東京\u3000大阪 ｶﾀｶﾅ",
        "Oui\u202f! 10\u00a0€…",
        "x² + H₂O = ½",
        "№ 5",
    ),
    *("10⁻³", "می\u200cخواهم", "น้ำแข็ง", "क्\u200dष", "👩🏽\u200d🚀 ❤\ufe0f"),
)
# Raw text, and its one form.
FORMS = {
    "We\x0bsleep.": "We sleep.",
    "a\x1c\x1fb\x85c\u2028d\r\n": "a b c d",
    "soft\u00adly \u202agoes\u202c\u200f \ufeffx\u2060y\u200bz\x00": "softly goes xyz",
    unicodedata.normalize("NFD", "Tiếng Việt"): "Tiếng Việt",
    "a  \u200b  b": "a b",
    "\u3000\u200c\ufe0f": "",
}


def corpus_of(tmp_path, sources, targets, **changes):
    config = base.get_config()
    config.data.cache_dir = str(tmp_path)
    config.tokenizer.vocab_size, config.tokenizer.byte_fallback = 420, True
    config.update_from_flattened_dict(changes)
    pairs = list(map(Pair, sources, targets))
    return config, prepare_corpus(pairs, config.data, config.tokenizer)


def written(tokenizer, texts):
    return [tokenizer.decode(ids) for ids in tokenizer.encode(texts)]


@pytest.mark.parametrize(("kind", "joint", "size"), [("bpe", False, 420), ("unigram", True, 340)])
def test_targets_keep_their_characters_and_sources_are_read_by_the_rule(
    tmp_path, kind, joint, size
):
    keys = {"tokenizer.joint": joint, "tokenizer.kind": kind, "tokenizer.symbols": ("<ＵＲＬ>",)}
    _, corpus = corpus_of(tmp_path, TARGETS, TARGETS, **keys, **{"tokenizer.vocab_size": size})
    save_tokenizers(tmp_path, corpus.source_tokenizer, corpus.target_tokenizer)
    for source, target in (
        (corpus.source_tokenizer, corpus.target_tokenizer),
        load_tokenizers(tmp_path),
    ):
        assert written(target, TARGETS) == list(TARGETS)
        assert written(source, ["ＰＮ，½ <ＵＲＬ>"]) == ["PN,1⁄2 <ＵＲＬ>"]
        assert (source.model == target.model) == joint
        assert target.normalize("P，") == "▁P，"  # of which segmentations are drawn
    ids = [ids.tolist() for ids in corpus.target]
    assert ids == corpus.target_tokenizer.encode(TARGETS)


def test_a_vocabulary_that_grows_reads_and_writes_as_before(tmp_path):
    first = corpus_of(tmp_path, TARGETS, TARGETS)[1]
    save_tokenizers(tmp_path, first.source_tokenizer, first.target_tokenizer)
    config = base.get_config()
    config.data.cache_dir = str(tmp_path)
    config.tokenizer.initial, config.tokenizer.vocab_size = "grow", 500
    pairs = [Pair("ＡＢＣ ＡＢＣ", "（ＡＢＣ） ＡＢＣ")] * 9
    grown = prepare_corpus(pairs, config.data, config.tokenizer, initial=tmp_path)
    assert grown.source_tokenizer.vocab_size > first.source_tokenizer.vocab_size
    assert written(grown.target_tokenizer, ["（ＡＢＣ） ½"]) == ["（ＡＢＣ） ½"]
    assert written(grown.source_tokenizer, ["（ＡＢＣ）"]) == ["(ABC)"]


@pytest.mark.parametrize(("raw", "form"), FORMS.items(), ids=ascii)
def test_every_part_sees_one_form_of_a_text(tmp_path, monkeypatch, raw, form):
    tokenizer = corpus_of(tmp_path, TARGETS, TARGETS)[1].target_tokenizer
    assert written(tokenizer, [raw]) == [form]
    splits = {split: [Pair(raw, raw)] for split in ("train", "validation", "test")}
    monkeypatch.setattr(pair_text, "open_source", lambda *_: splits)
    held_out = pair_text._open(base.get_config().data, None)["test"]
    assert [pair[:2] for pair in held_out] == [(form, form)]
    if form:
        assert refuse_blank(raw, "line 1") == form
    else:
        with pytest.raises(UserError, match="line 1 is blank"):
            refuse_blank(raw, "line 1")
