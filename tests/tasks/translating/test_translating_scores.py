"""The score of a translation is what the search found, whatever the other lines hold."""

import jax
import numpy as np
import pytest
from letter_sentences import sentences
from ml_collections import ConfigDict

from tiny_run import command, refused
from transformer.data.tokenizer import EOS_ID
from transformer.inference.search import BeamSearch
from transformer.runs import workdir
from transformer.tasks.translation import TranslationTask


def test_the_score_of_a_translation_is_what_the_search_found(loaded, monkeypatch):
    translator, params = loaded
    decode = ConfigDict({**translator.decode, "length_penalty": "none"})
    monkeypatch.setattr(translator, "search", BeamSearch(translator.model, decode))
    lines = sentences(6, seed=2)
    best = [found[0] for found in translator.translate(params, lines)]
    scores = list(translator.score(params, lines, [t.text for t in best]))
    np.testing.assert_allclose([s for s, _ in scores], [t.score for t in best], rtol=1e-4)
    tokens = translator.target_tokenizer.encode([t.text for t in best])
    assert [count for _, count in scores] == [len(ids) + 1 for ids in tokens]
    [(other, _)] = translator.score(params, lines[:1], ["p p p"])
    assert other != pytest.approx(best[0].score, rel=1e-2)


def test_scores_do_not_depend_on_the_other_lines(loaded):
    translator, params = loaded
    pairs = list(zip(sentences(9, 3), sentences(9, 4), strict=True))
    together = list(translator.score(params, *map(list, zip(*pairs, strict=True))))
    for pair, (log_prob, count) in list(zip(pairs, together, strict=True))[::4]:
        [(alone, alone_count)] = translator.score(params, *([text] for text in pair))
        assert alone == pytest.approx(log_prob, rel=1e-4)
        assert alone_count == count


def test_score_keeps_blank_lines_blank_and_names_a_line_with_wrong_columns(tiny):
    arguments = ["--mode=score", f"--workdir={tiny.workdir}"]
    ended = command(*arguments, stdin="\na b\ta b\n  \n\u200b\nc\td\n\t\n".encode())
    assert (ended.code, ended.err) == (0, "")
    rows = ended.out.splitlines()
    assert [rows.pop(i) for i in (3, 2, 0)] == [""] * 3
    assert [row.split("\t")[1] for row in rows] == ["3", "2", "1"]
    assert all(float(row.split("\t")[0]) < 0 for row in rows)
    says = "line 2 has 1 column: score reads source<TAB>target"
    assert refused(*arguments, stdin=b"a\tb\nc\n", says=says).out == ""


@pytest.mark.full
@pytest.mark.parametrize("beam_size", [1, 4])
def test_final_scores_say_how_many_translations_are_degenerate(tiny, loaded, beam_size):
    _, variables = loaded
    config = workdir.load_config(tiny.workdir)
    config.decode.beam_size = beam_size
    task = TranslationTask.from_folder(tiny.workdir, config)
    sources = [pair.source for pair in task.text.pairs["test"]]

    def fraction(params):
        translations = task.predictor.translate({"params": params}, sources)
        scores = task.evaluate(params, "test", final=True)
        [text, *_] = scores["texts"].values()
        assert text == [best.text for best, *_ in translations]
        assert scores["degenerate"] == np.mean([best.degenerate for best, *_ in translations])
        return scores["degenerate"], np.mean([best.text == "" for best, *_ in translations])

    size = task.predictor.target_tokenizer.vocab_size
    endless, brief = (jax.tree.map(np.array, variables["params"]) for _ in range(2))
    for params, factor in ((endless, 0), (brief, 2)):
        [table] = [leaf for leaf in jax.tree.leaves(params) if len(leaf) == size]
        table[EOS_ID] *= factor
    assert fraction(endless)[0] == 1
    degenerate, empty = fraction(brief)
    assert degenerate == empty < 1  # the control: none loops
    assert (empty > 0) == (beam_size == 1)  # a beam has others
    assert (0 < fraction(variables["params"])[0] < 1) == (beam_size == 1)
    assert "degenerate" not in task.evaluate(brief, "test", final=False)
