"""What loops, or ends only at its limit, is never the best of a beam that has something else."""

import jax.numpy as jnp
import numpy as np
import pytest
from trie_search import EOS_ID, STEPS, VOCAB, next_node, trie_search, trie_size

from transformer.data.tokenizer import Tokenizer
from transformer.decoding.search import Hypotheses
from transformer.inference.hypotheses import loops, read_hypotheses

SOURCE = "We met three dogs."


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("DO NOT TOUCH THE RED BUTTON.", "NOOEEECCCCCCCCCC"),
        ("IRAN AND AMERICA", "Babababababa"),
        ("He sits.", "Er sitzt so so so so so da."),
        ("On a bench.", "Auf einer Bank, auf einer Bank, auf einer Bank."),  # three times is enough
        ("On a bench.", "AUF einer Bank auf einer bank. Auf EINER Bank"),
        ("We sleep.", "我们睡觉我们睡觉我们睡觉"),
        ("No, no, no!", "Nein, nein, nein, nein, nein, nein, nein!"),  # more than twice as often
        ("It costs 1000 euros.", "Es kostet kostet kostet kostet kostet kostet kostet."),
        ("Stop.", "Halt . . . . . . . . . . ."),
    ],
)
def test_a_phrase_three_times_in_a_row_is_a_loop(source, text):
    assert loops(text, source)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (SOURCE, "Wir trafen drei Hunde."),
        (SOURCE, "Auf einer Bank, auf einer Bank."),  # twice
        ("Bears are dangerous.", "Los osos son peligrosos."),  # "os" three times
        ("Do you laugh?", "Ha ha ha!!!"),  # short
        ("It costs a million.", "Es kostet 1.000.000."),
        ("No, no, no!", "Nein nein nein!"),  # as in the source, whatever its commas and length
        ("好好好", "Very good, very good, very good."),
        ("Bye bye bye bye", "Auf Wiedersehen, auf Wiedersehen, auf Wiedersehen, auf Wiedersehen!"),
        (SOURCE, ""),
    ],
)
def test_what_is_repeated_less_is_short_or_is_as_in_the_source_is_no_loop(source, text):
    assert not loops(text, source)


class Words(Tokenizer):
    """A tokenizer whose ids are words."""

    words = ("", "", "", "no", "three", "dogs", "cats")

    def __init__(self):
        pass

    def decode(self, ids):
        return " ".join(self.words[i] for i in ids if i > EOS_ID)


def beam(*hypotheses):
    """The hypotheses of a sentence from (score, forced, ids), best first."""
    steps = max(len(ids) for *_, ids in hypotheses)
    tokens = [[*ids, *[EOS_ID] * (steps - len(ids))] for *_, ids in hypotheses]
    scores, forced, ids = zip(*hypotheses, strict=True)
    return Hypotheses(*map(jnp.array, (tokens, [*map(len, ids)], scores, forced)))


LOOP, END = (-1.0, False, (5, 5, 5, EOS_ID)), (-4.0, False, (4, 5, EOS_ID))
FORCED, WORSE = (-2.0, True, (4, 3, 3, EOS_ID)), (-8.0, False, (4, 6, EOS_ID))


def read(*hypotheses, source=SOURCE, count=4):
    return read_hypotheses(beam(*hypotheses), Words(), source, count)


def test_what_loops_or_is_forced_to_end_comes_last_with_its_own_score():
    best = read(LOOP, FORCED, END, WORSE)
    assert [each.text for each in best] == [
        "three dogs",
        "three cats",
        "dogs dogs dogs",
        "three no no",
    ]
    assert [(each.score, each.degenerate) for each in best] == [(-4, 0), (-8, 0), (-1, 1), (-2, 1)]
    for count in (1, 2, 3):
        assert read(LOOP, FORCED, END, WORSE, count=count) == best[:count]


def test_an_empty_translation_comes_last():
    best = read((-0.5, False, (EOS_ID,)), END)
    assert [(each.text, each.degenerate) for each in best] == [("three dogs", 0), ("", 1)]


def test_a_repetition_that_is_in_the_source_stays_the_best():
    best = read(LOOP, END, source="Hunde, Hunde, Hunde")
    assert [(each.text, each.degenerate) for each in best] == [
        ("dogs dogs dogs", 0),
        ("three dogs", 0),
    ]


def test_a_text_that_ends_in_one_spelling_and_is_forced_to_in_another_is_there_once():
    forced = (-1.0, True, (4, 1, 5, EOS_ID))
    assert [each.degenerate for each in read(forced, END)] == [0]


# -- forced by the limit

GO_ON, MAY_END = [-1e3, -1e3, -8.0, 0.0], [-1e3, -1e3, -4.0, 0.0]
ENDS = [-1e3, -1e3, 0.0, -4.0]


@pytest.mark.parametrize("beam_size", [1, 2])
@pytest.mark.parametrize(("last", "forced"), [(MAY_END, True), (ENDS, False)])
def test_only_a_hypothesis_that_would_go_on_is_forced_by_its_limit(beam_size, last, forced):
    table, node = np.zeros((1, trie_size(VOCAB, STEPS), VOCAB)), 0
    for logits in (GO_ON, GO_ON, GO_ON, last):
        table[0, node] = logits
        node = next_node(node, 3, VOCAB)
    found = trie_search(table, [STEPS], beam_size)
    assert found.lengths[0].tolist() == [STEPS, 1][:beam_size]
    assert found.forced[0].tolist() == [forced, False][:beam_size]
