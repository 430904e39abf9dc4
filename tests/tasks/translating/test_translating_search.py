"""The search finds the same in any batch, sorted, within the limits and without unknown words."""

import collections
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from letter_sentences import sentences
from ml_collections import ConfigDict

from transformer.data.tokenizer import BOS_ID, PAD_ID, UNK_ID
from transformer.inference import search
from transformer.inference.search import BeamSearch
from transformer.inference.translator import Translator
from transformer.runs import workdir
from transformer.tasks.translation import load_tokenizers, make_translator

# -- several translations


def test_the_best_translations_are_different_texts_and_a_list_begins_with_the_shorter_ones(
    loaded, monkeypatch
):
    translator, params = loaded
    tokenizer, decode = translator.target_tokenizer, translator.target_tokenizer.decode
    # As if the first words were spelt by many tokens.
    monkeypatch.setattr(tokenizer, "decode", lambda ids: " ".join(decode(ids).split()[:3]))
    lines = ["a b c", "", "d e f a"]
    [lists] = [translator.translate(params, lines, num_best=4)]
    texts = [[found.text for found in own] for own in lists]
    assert all(0 < len(set(own)) == len(own) <= 4 for own in texts[::2])
    scores = [[found.score for found in own] for own in lists]
    assert scores == [sorted(own, reverse=True) for own in scores]
    for count in (1, 2):
        shorter = translator.translate(params, lines, num_best=count)
        assert [[found.text for found in own] for own in shorter] == [own[:count] for own in texts]
    monkeypatch.setattr(tokenizer, "decode", lambda ids: "a")
    assert [len(own) for own in translator.translate(params, lines, num_best=4)] == [1, 1, 1]


def test_translations_do_not_depend_on_batches_order_or_neighbours(loaded):
    translator, params = loaded
    lines = [*sentences(13), "", "a"]
    expected = translator.translate(params, lines)
    alone = [translator.translate(params, [line])[0] for line in lines[::5]]
    results = {"alone": (alone, expected[::5])}
    order = np.random.default_rng(1).permutation(len(lines))
    mixed = translator.translate(params, [lines[i] for i in order])
    results["mixed"] = (mixed, [expected[i] for i in order])
    before = translator.decode.batch_size
    try:
        for size in (1, 3, 64):
            translator.decode.batch_size = size
            results[size] = (translator.translate(params, lines), expected)
    finally:
        translator.decode.batch_size = before
    for found, wanted in results.values():
        assert [[t.text for t in best] for best in found] == [
            [t.text for t in best] for best in wanted
        ]
        np.testing.assert_allclose(
            [best[0].score for best in found], [best[0].score for best in wanted], rtol=1e-4
        )
    assert len({best[0].text for best in expected}) > 3  # the control: they are not all the same


@pytest.mark.slow
def test_a_search_that_grows_and_shrinks_finds_the_same(loaded, monkeypatch):
    translator, params = loaded
    lines = sentences(13)
    expected = translator.translate(params, lines)
    for name, value in {"FIRST_ROOM": 1, "MIN_ROWS": 1, "MANY": 0}.items():
        monkeypatch.setattr(search, name, value)
    monkeypatch.setattr(translator, "search", BeamSearch(translator.model, translator.decode))
    changes = []
    for name in ("_grow", "_take"):
        made = getattr(translator.search, name)

        def counted(*arguments, name=name, made=made):
            changes.append(name)
            return made(*arguments)

        monkeypatch.setattr(translator.search, name, counted)
    found = translator.translate(params, lines)
    assert {*changes} == {"_grow", "_take"}
    assert [[t.text for t in best] for best in found] == [[t.text for t in b] for b in expected]
    np.testing.assert_allclose(
        [t.score for best in found for t in best], [t.score for b in expected for t in b], rtol=1e-4
    )


# -- limits


def test_the_limits_by_hand():
    decode = ConfigDict({"max_ratio": 1.5, "max_extra": 2})
    translator = SimpleNamespace(decode=decode, max_length=11)
    limits = [Translator._max_target_length(translator, length) for length in (3, 9, 1)]
    assert limits == [6, 11, 3]
    decode.update({"max_ratio": 0.0, "max_extra": 0})
    assert Translator._max_target_length(translator, 9) == 1


@pytest.mark.full
def test_each_translation_ends_at_its_own_limit(loaded):
    translator, variables = loaded
    lines, limits = ["a b c d e", "f g h i j", "k l m n o"], [9, 3, 4]
    found = [best[0].tokens for best in translator.translate(variables, lines, 1, limits=limits)]
    assert all(tokens <= limit for tokens, limit in zip(found, limits, strict=True))
    alone = [best[0].tokens for best in translator.translate(variables, lines, 1)]
    assert found[1:] == [3, 4]
    assert min(alone[1:]) > 4  # the control: without limits they are longer
    both = jax.tree.map(lambda x: np.stack([x, x]), variables)
    stacked = translator.translate_stacked(both, lines, 1, limits=limits)
    assert [[best[0].tokens for best in run] for run in stacked] == [found, found]


@pytest.mark.full
def test_learned_positions_are_never_overrun_in_use(tiny, said):
    config = workdir.load_config(tiny.workdir)
    config.model.positions = "learned"
    config.decode.max_extra = 500
    config.decode.beam_size = 1
    translator = make_translator(config, *load_tokenizers(tiny.workdir))
    variables = {"params": jax.jit(translator.init_params)(jax.random.key(0))}
    [[best]] = translator.translate(variables, ["a b c d " * 30])
    assert len(translator.target_tokenizer.encode([best.text])[0]) <= 32
    [(log_prob, tokens)] = translator.score(variables, ["a " * 90], ["b " * 90])
    assert (np.isfinite(log_prob), tokens) == (True, 32)
    assert len(said) == 3
    assert all("model.max_length=32" in line for line in said)


@pytest.mark.full
def test_no_search_writes_unknown_padding_or_begin_however_probable(tiny, loaded, monkeypatch):
    translator, variables = loaded
    lines, size = sentences(20), translator.target_tokenizer.vocab_size
    written = [best[0].text for best in translator.translate(variables, lines)]
    letters = collections.Counter("".join(written).replace(" ", ""))
    [favourite] = translator.target_tokenizer.encode([letters.most_common(1)[0][0]])[0]
    # All that is tied has one table: where the favourite is likely, these are far more so.
    params = jax.tree.map(np.array, variables["params"])
    [table] = [leaf for leaf in jax.tree.leaves(params) if len(leaf) == size]
    table[[PAD_ID, UNK_ID, BOS_ID]] = 30 * table[favourite]

    def unknown(beam):
        config = workdir.load_config(tiny.workdir)
        own = make_translator(config, *load_tokenizers(tiny.workdir))
        found = own.translate({"params": params}, lines, beam)
        return sum("⁇" in best[0].text for best in found)

    assert (unknown(1), unknown(3)) == (0, 0)
    monkeypatch.setattr(search, "NEVER_WRITTEN", (PAD_ID,))
    assert unknown(1) > 0  # the control: it would


def test_a_line_in_capitals_is_translated_in_sentence_case_and_written_in_capitals(loaded):
    translator, params = loaded
    lines = ["A B C D E", "D E A B", "a b c d"]
    assert not translator.decode.transfer_case
    plain = translator.translate(params, ["A b c d e", "D e a b", "a b c d"], num_best=2)
    raw = translator.translate(params, lines, num_best=2)
    translator.decode.transfer_case = True
    try:
        written = translator.translate(params, lines, num_best=2)
        attention = translator.attention(params, "A B C D E")
        shown = translator.attention(params, "A B C D E", written[0][0].text)
        typed = translator.attention(params, "A B C D E", "d E")
    finally:
        translator.decode.transfer_case = False
    texts, of_plain = ([[each.text for each in best] for best in own] for own in (written, plain))
    assert texts[0][0] == of_plain[0][0].upper()
    assert texts[1][0] == of_plain[1][0].upper()
    assert texts[2] == of_plain[2]
    assert [best[0].score for best in written] == [best[0].score for best in plain]
    assert raw[0] != written[0]
    read = translator.attention(params, "A b c d e")
    assert attention[2:] == read[2:] == shown[2:]
    assert typed[2:] == translator.attention(params, "A b c d e", "d E")[2:]
