"""Wrong translations are errors of the search or of the model, by the scores of the search."""

from types import SimpleNamespace

import numpy as np
import pytest
from report_examples import Reader

from configs import base
from experiments.results import outputs as report_texts
from experiments.results import report_page as report
from experiments.results import run_tables as tables
from experiments.results.outputs import (
    EXACT,
    MODEL,
    SEARCH,
    Reference,
    Sentence,
    judge,
    penalised,
    score_references,
)
from tiny_run import command
from transformer.data.tokenizer import UNK_ID
from transformer.runs.run import Run, TrainedRun
from transformer.runs.workdir import load_config


def decode(penalty, alpha=1.0):
    settings = base.get_config().decode
    settings.length_penalty, settings.alpha = penalty, alpha
    return settings


def sentence(translation="x", log_prob=-4.0, tokens=1, reference="y"):
    return Sentence(1, "source", reference, translation, 0.0, log_prob, tokens)


def judged(found, given, own, tokens=1, is_found=False):
    """What became of a translation of log-probability -4 whose reference has this one."""
    return judge([found], [Reference(given, tokens, is_found)], own)[0]


def test_an_error_is_the_search_s_where_the_reference_scores_higher():
    own = decode("none")
    kinds = {given: judged(sentence(), given, own).kind for given in (-3.9, -4.0, -4.1)}
    assert kinds == {-3.9: SEARCH, -4.0: MODEL, -4.1: MODEL}
    assert judged(sentence(translation="y"), -3.9, own).kind == EXACT
    assert judged(sentence(), -3.9, own)[1:3] == (-4.0, -3.9)
    # A lead that rounding may make is none.
    assert judged(sentence(), -4.0 + 3e-3, own).kind == MODEL
    assert judged(sentence(), -4.0 + 5e-3, own).kind == SEARCH
    # Nothing was decoded of a blank sentence.
    blank = sentence(translation="", log_prob=0.0, tokens=0)
    assert judge([blank, sentence()], [Reference(-1.0, 1, False), None], own) == []


def test_scores_are_compared_as_the_search_compares_them():
    # (5 + 1) / 6 = 1 and (5 + 13) / 6 = 3: the longer of the two is ahead by its penalty alone.
    found, given = sentence(log_prob=-4.0, tokens=1), (-6.0, 13)
    kinds = {}
    for penalty in ("gnmt", "average", "none"):
        kinds[penalty] = judged(found, given[0], decode(penalty), tokens=given[1]).kind
    assert penalised(*given, decode("gnmt")) == pytest.approx(-2.0)
    assert penalised(*given, decode("average")) == pytest.approx(-6 / 13)
    assert kinds == {"gnmt": SEARCH, "average": SEARCH, "none": MODEL}


def test_references_that_are_cut_or_have_unknown_words_are_not_scored():
    reader = Reader()
    reader.max_length = 4
    sentences = [sentence(reference=text) for text in ("a b c", "a b c d", "a")]
    sentences.append(sentence(reference="a")._replace(source="a b c d"))  # translated in parts
    references = score_references(TrainedRun(reader, {}), sentences)
    assert references == [Reference(-1.0, 4, False), None, Reference(-1.0, 2, True), None]
    reader = Reader()
    reader.target_tokenizer = SimpleNamespace(
        encode=lambda texts: [
            [UNK_ID if word == "中" else 7 for word in text.split()] for text in texts
        ]
    )
    trained = TrainedRun(reader, {})
    unknown, known = sentence("x x", reference="a 中"), sentence("x x", reference="a")
    assert score_references(trained, [unknown, known]) == [None, Reference(-1.0, 2, False)]

    def counts(*sentences):
        group = report_texts._errors(decode("none"), sentences, trained, "")
        left_out = [note for note in group.notes if note.startswith("Left out")]
        return {row[0]: row[1] for row in group.tables[0].rows}["search error"], left_out

    # Both references score above the translation.
    found, [note] = counts(unknown, known, unknown)
    assert found == "1"
    assert note.startswith("Left out: 2 sentences")
    assert "unknown words" in note
    assert counts(known) == ("1", [])


def test_the_likelihoods_kept_of_translations_are_those_of_the_mode_score(tiny):
    texts = {
        kind: (tiny.workdir / f"translations/test{kind}").read_text().splitlines()
        for kind in (".source.txt", ".txt", ".scores.tsv")
    }
    pairs = "".join(f"{a}\t{b}\n" for a, b in zip(texts[".source.txt"], texts[".txt"], strict=True))
    scored = command("--mode=score", f"--workdir={tiny.workdir}", stdin=pairs.encode()).out
    kept, again = (
        np.array([line.split("\t") for line in lines], float)
        for lines in (texts[".scores.tsv"], scored.splitlines())
    )
    np.testing.assert_allclose(kept, again, atol=2e-3)
    assert len(set(kept[:, 0])) > 1


def test_errors_are_judged_by_the_search_that_made_the_scores(tiny):
    config, results = load_config(tiny.workdir), Run(tiny.workdir).results
    assert results["decode"] == config.decode.to_dict()

    def told(results):
        decode = tables.decode_of(config.decode, results)
        groups = report._groups(Run(tiny.workdir), decode, results, TrainedRun(Reader(), {}), "")
        [note] = [note for group in groups for note in group.notes if "length penalty" in note]
        return note, dict(tables.decode_table(decode, "translation").rows)

    note, table = told({**results, "decode": {**results["decode"], "beam_size": 7, "alpha": 0.25}})
    assert "length penalty (gnmt, alpha 0.25), as the search with a beam of 7 compares" in note
    assert (table["decode.beam_size"], table["decode.alpha"]) == ("7", "0.25")
    older = {name: value for name, value in results.items() if name != "decode"}
    note, table = told(older)
    assert "length penalty (gnmt, alpha 0.6), as the search with a beam of 4 compares" in note
    assert table["decode.beam_size"] == "4"
