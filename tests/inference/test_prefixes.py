"""Prefixes, next tokens, alternatives and beams of the trained model in the package."""

import copy
import functools
import math
import random

import jax
import numpy as np
import pytest
from plain_search import EOS_ID, plain_search

import transformer
from experiments.modes.beam import best_path
from tiny_models import tiny_model
from transformer.data.tokenizer import NEVER_WRITTEN
from transformer.errors import UserError
from transformer.inference.inspection import Inspector
from transformer.inference.prefixes import Prefix
from transformer.inference.search import BeamSearch
from transformer.inference.translator import Translator
from transformer.model.positions.registry import REGISTRY

LINES = ["My letter lay on this chair two days ago.", "The old teacher sees two birds."]


@pytest.fixture(scope="module")
def run():
    return transformer.load("quickstart")


@pytest.fixture(scope="module")
def log_probs(run):
    """A function of a source and the ids of a beginning: the next log-probabilities."""
    model, variables = run.trained.predictor, run.trained.variables
    compute = jax.jit(
        lambda batch: jax.nn.log_softmax(model.model.apply(variables, *model.inputs(batch)))
    )

    @functools.cache
    def after(line, tokens):
        [source] = model.source_tokenizer.encode([line])
        batch = model.make_batch([source], [tokens], 1, 32)
        return np.asarray(compute(batch))[0, len(tokens)].tolist()

    return after


def begins(run, prefix):
    """Whether tokens may begin a translation with a prefix: compares texts alone."""
    pieces = run.trained.predictor.target_tokenizer.pieces
    wanted = "\u2581" + prefix.replace(" ", "\u2581") if prefix else ""

    def allows(tokens):
        if {*tokens} & {*NEVER_WRITTEN}:
            return False
        text = "".join(pieces([token for token in tokens if token != EOS_ID]))
        is_over = text.startswith(wanted)
        return is_over or (EOS_ID not in tokens and wanted.startswith(text))

    return allows


def searched(run, line, prefix, **decode):
    """The beam of the run with other keys of `decode`, as `plain_search` has it."""
    model = copy.copy(run.trained.predictor)
    model.decode = run.config.decode.copy_and_resolve_references()
    model.decode.update(decode)
    model.__dict__["search"] = BeamSearch(model.model, model.decode)
    ids = {piece: i for i, piece in enumerate(model.pieces(range(2000)))}
    live, steps = [()], []
    for step in Inspector(model, run.trained.variables).beam(line, Prefix(prefix)):
        paths = [(*live[each.parent], ids[each.token]) for each in step]
        steps.append([(path, *each[2:]) for path, each in zip(paths, step, strict=True)])
        live = [path for path, each in zip(paths, step, strict=True) if each.fate == "kept"]
    return steps


def same(steps, expected):
    assert [[(x[0], x[3]) for x in step] for step in steps] == [
        [(x[0], x[3]) for x in step] for step in expected
    ]
    for step, right in zip(steps, expected, strict=True):
        np.testing.assert_allclose(*([x[1:3] for x in y] for y in (step, right)), atol=2e-5)


@pytest.mark.full
@pytest.mark.parametrize("penalty", ["gnmt", "average", "none"])
@pytest.mark.parametrize("beam_size", range(1, 7))
def test_each_step_of_a_beam_is_that_of_a_plain_search(beam_size, penalty, run, log_probs):
    decode = {"length_penalty": penalty, "alpha": 1.0, "beam_size": beam_size}
    for line, prefix in zip(LINES, ("", "Die"), strict=True):
        after = functools.partial(log_probs, line)
        limit = run.trained.predictor._max_target_length(
            len(run.trained.predictor.source_tokenizer.encode([line])[0]) + 1
        )
        expected = plain_search(after, begins(run, prefix), limit, beam_size, penalty, 1.0)
        same(searched(run, line, prefix, **decode), expected)


def test_a_translation_as_its_own_prefix_has_the_same_score_at_every_cut(run):
    texts, best = run.translate(LINES), run.translate(LINES, num_best=1)
    cuts = [
        (line, text[:n], b)
        for line, text, [b] in zip(LINES, texts, best, strict=True)
        for n in range(len(text) + 1)
    ]
    lines, prefixes, right = zip(*cuts, strict=True)
    for [got], expected in zip(run.translate(lines, 1, prefix=prefixes), right, strict=True):
        assert got.text == expected.text
        assert math.isclose(got.score, expected.score, abs_tol=1e-5)


def test_other_prefixes_change_the_rest_and_none_changes_nothing(run):
    assert run.translate(LINES, prefix=["", ""]) == run.translate(LINES)
    bests = run.translate(LINES, 4, prefix=["Ein", "Die "])
    assert all(x.text.startswith(("Ein", "Die ")) for best in bests for x in best)
    assert run.translate(LINES, 4, prefix=["", "Die "])[0] == run.translate(LINES, 4)[0]
    whole = run.translate(["We sleep. " + LINES[1]], prefix=["Wir schliefen. Die"])
    assert whole[0].startswith("Wir schliefen. Die")
    [capitals] = run.translate(["WE SLEEP."], prefix=["IH"])
    assert capitals.startswith("IH")


def test_next_tokens_are_the_scores_and_a_temperature_divides_the_logits(run, log_probs):
    texts = run.translate(LINES)
    for line, text, tokens in zip(LINES, texts, run.next_tokens(LINES, texts, 3), strict=True):
        [score] = run.score([line], [text])
        assert math.isclose(sum(token.log_prob for token in tokens), score.log_prob, abs_tol=1e-5)
        ids = tuple(run.trained.predictor.target_tokenizer.encode([text])[0])
        for position, token in enumerate(tokens):
            right = np.float64(log_probs(line, ids[:position]))
            assert math.isclose(token.entropy, -(np.exp(right) * right).sum(), abs_tol=1e-4)
            top = sorted(set(range(2000)) - {*NEVER_WRITTEN}, key=lambda i: -right[i])[:3]
            assert [x.token for x in token.best] == run.trained.predictor.pieces(top)
    [warm] = run.next_tokens(LINES[:1], texts[:1], 1, temperature=2.0)
    logits = np.float64(log_probs(LINES[0], ())) / 2
    assert math.isclose(warm[0].log_prob, logits.max() - np.log(np.exp(logits).sum()), abs_tol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("positions", [name for name in REGISTRY if not name.startswith("grid")])
def test_a_forced_pass_has_the_probabilities_of_the_search(positions, norm, run):
    tokenizer = run.trained.predictor.target_tokenizer
    sizes = dict.fromkeys(("source_vocab_size", "target_vocab_size"), tokenizer.vocab_size)
    model, variables = tiny_model(positions=positions, norm_position=norm, max_length=32, **sizes)
    translator = Translator(model, tokenizer, tokenizer, run.config.decode)
    steps = Inspector(translator, variables).beam(LINES[0], Prefix())
    path = best_path(steps)
    ids = [translator.pieces(range(2000)).index(each.token) for each in path[:-1]]
    [source] = tokenizer.encode(LINES[:1])
    batch = translator.make_batch([source], [ids], 1, 32)
    log_probs, *_ = translator.distribution(variables, batch, 1.0, 1)
    forced = np.cumsum(log_probs[0, : len(path)])
    np.testing.assert_allclose(forced, [each.log_prob for each in path], atol=1e-5 * len(path))


def test_alternatives_keep_what_is_before_them_and_take_a_whole_word(run):
    [text] = run.translate(LINES[:1])
    first, second, *_ = run.alternatives(LINES[0], text, 1)
    assert (first.word, first.prefix, first.text) == ("Brief", "Mein Brief ", text)
    assert second.text.startswith(second.prefix)
    [again] = run.translate(LINES[:1], prefix=[second.prefix])
    assert again.startswith(second.prefix)
    ends = run.alternatives(LINES[0], text, len(run.next_tokens(LINES[:1], [text])[0]) - 1)
    assert (ends[0].token, ends[0].text) == ("</s>", text)


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda run: run.translate(LINES, prefix=["M"]), "2 texts and 1 prefixes"),
        (lambda run: run.translate(LINES, prefix=["", "a\u0416"]), "has 'Ж', which the tokenizer"),
        (lambda run: run.translate(LINES, prefix=["", "Der " * 60]), "more tokens than"),
        (lambda run: run.beam("We sleep. " * 2), "in 2 parts"),
        (lambda run: run.next_tokens(LINES, LINES, temperature=math.nan), "temperature=nan"),
        (lambda run: run.next_tokens(LINES, LINES, 0), "num_best=0"),
        (lambda run: run.next_tokens(LINES), "needs targets"),
        (lambda run: run.alternatives(LINES[0], "Mein", 9), "position=9 is not between 0 and 1"),
        (lambda run: run.beam(" "), "blank"),
    ],
)
def test_impossible_questions_end_in_a_line(ask, says, run):
    with pytest.raises(UserError, match=says):
        ask(run)


@pytest.mark.full
def test_a_cut_within_a_word_has_the_score_of_its_best_segmentation(run, log_probs):
    draw, model = random.Random(3), run.trained.predictor
    for text in draw.choices(["Brief", "Lehrer", "Schwimmbad", "Vogel", "Kollegin"], k=3):
        cut = text[: draw.randrange(1, len(text))]
        steps = searched(run, LINES[1], cut, beam_size=12)
        best = max(x[2] for step in steps for x in step if x[3] == "finished")
        everything = plain_search(
            functools.partial(log_probs, LINES[1]),
            begins(run, cut),
            17,
            50,
            model.decode.length_penalty,
            model.decode.alpha,
        )
        assert math.isclose(
            best, max(x[2] for step in everything for x in step if x[3] == "finished"), abs_tol=2e-5
        )
