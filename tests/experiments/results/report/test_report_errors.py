"""Wrong translations are errors of the search or of the model, by the scores of the search."""

from types import SimpleNamespace

import pytest

from configs import base
from experiments.results import outputs as report_texts
from experiments.results.outputs import EXACT, MODEL, SEARCH, Sentence, judge, penalised
from transformer.data.tokenizer import UNK_ID
from transformer.inference.translator import Translator
from transformer.runs.run import TrainedRun

TOKENIZER = SimpleNamespace(
    encode=lambda texts: [[UNK_ID if c == "中" else ord(c) for c in text] for text in texts]
)


class Scorer(Translator):
    """A translator whose tokens are letters, and whose score of every reference is `result`."""

    source_tokenizer = target_tokenizer = TOKENIZER
    max_length = 9

    def __init__(self, *result):
        self.result = result

    def score(self, variables, sources, targets):
        return (self.result for _ in targets)


def trained(log_prob, tokens=1):
    return TrainedRun(Scorer(log_prob, tokens), {})


def decode(penalty, alpha=1.0):
    settings = base.get_config().decode
    settings.length_penalty, settings.alpha = penalty, alpha
    return settings


def sentence(translation="x", log_prob=-4.0, tokens=1, reference="y", source="s"):
    return Sentence(1, source, reference, translation, 0.0, log_prob, tokens)


def kind_of(log_prob, **changes):
    """The kind of a translation of log-probability -4 whose reference has this one."""
    [judged] = judge(trained(log_prob), [sentence(**changes)], decode("none"))
    assert (judged.translation, judged.reference) == (-4.0, log_prob)
    return judged.kind


def test_an_error_is_the_search_s_where_the_reference_scores_higher():
    assert [kind_of(score) for score in (-3.9, -4.0, -4.1)] == [SEARCH, MODEL, MODEL]
    assert kind_of(-3.9, translation="y") == EXACT
    # A lead that rounding may make is none.
    assert [kind_of(-4.0 + lead) for lead in (3e-3, 5e-3)] == [MODEL, SEARCH]


def test_scores_are_compared_as_the_search_compares_them():
    # (5 + 1) / 6 = 1 and (5 + 13) / 6 = 3: the longer of the two is ahead by its penalty alone.
    kinds = {}
    for penalty in ("gnmt", "average", "none"):
        [judged] = judge(trained(-6.0, 13), [sentence()], decode(penalty))
        kinds[penalty] = judged.kind
    assert penalised(-6.0, 13, decode("gnmt")) == pytest.approx(-2.0)
    assert penalised(-6.0, 13, decode("average")) == pytest.approx(-6 / 13)
    assert kinds == {"gnmt": SEARCH, "average": SEARCH, "none": MODEL}


def test_references_that_are_cut_or_have_unknown_words_and_blank_sentences_are_left_out():
    sentences = [
        sentence(),
        sentence(reference="abcd"),
        sentence(source="abcd"),  # translated in parts
        sentence(reference="a中"),
        sentence(translation="", log_prob=0.0, tokens=0),
    ]
    scored = trained(-1.0)
    scored.predictor.max_length = 4
    group = report_texts._errors(decode("none"), sentences, scored, "")
    assert {row[0]: row[1] for row in group.tables[0].rows}["search error"] == "1"
    assert group.notes[-1].startswith("Left out: 4 sentences")
    assert group.examples[0].beam.endswith("/#text=s&tab=beam&why=y")
