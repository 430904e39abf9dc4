"""Samples, diverse beams and minimum Bayes risk of translators."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sacrebleu
from trie_search import (
    BOS_ID,
    EOS_ID,
    STEPS,
    VOCAB,
    Trie,
    found,
    log_softmax,
    next_node,
    table_step,
    trie_size,
)

import transformer
from transformer.decoding.search import Hypotheses, Rule, beam_search
from transformer.inference.hypotheses import mean_chrf, read_hypotheses
from transformer.runs.upgrades import upgrade

LINES = [
    "My letter lay on this chair two days ago.",
    "The old teacher sees two birds.",
    "We sleep.",
]


def diverse_search(log_probs, groups, size, diversity):
    """Diverse beam search with lists: (score, tokens) of each group, best first."""
    live, done, over = [[((), 0, 0.0)]] * groups, [[] for _ in range(groups)], [False] * groups
    for length in range(1, STEPS + 1):
        counts = np.zeros(VOCAB)
        for group in range(groups):
            options = [
                ((*tokens, v), next_node(node, v, VOCAB), total + log_probs[node, v] - penalty[v])
                for tokens, node, total in live[group]
                for penalty in [diversity * counts]
                for v in range(VOCAB)
                if length < STEPS or v == EOS_ID
            ]
            options = sorted(options, key=lambda option: -option[2])[: 2 * size]
            ends = [x for x in options[:size] if x[0][-1] == EOS_ID]
            live[group] = [x for x in options if x[0][-1] != EOS_ID][:size]
            if over[group]:
                continue
            done[group] += [(total, tokens) for tokens, _, total in ends]
            counts += np.bincount([x[0][-1] for x in live[group]], minlength=VOCAB)
            best = live[group][0][2] if live[group] else -np.inf
            over[group] = len(done[group]) >= size and max(done[group])[0] >= best
    return [sorted(each, reverse=True)[:size] for each in done]


@pytest.mark.parametrize(("groups", "size"), [(3, 1), (2, 2)])
def test_diverse_beams_are_those_of_a_plain_search(groups, size):
    tables = np.random.default_rng(2).normal(size=(7, trie_size(VOCAB, STEPS), VOCAB))
    rows = jnp.repeat(jnp.asarray(tables, jnp.float32), groups, axis=0)
    rule = Rule(size, BOS_ID, EOS_ID, "none", 0.0, (), groups, 0.7)
    cache = Trie(jnp.int32(0), jnp.zeros((len(rows), size), jnp.int32))
    limits = jnp.full(len(rows), STEPS)
    done, same = beam_search(lambda *x: table_step(rows, *x), cache, limits, rule, STEPS), 0
    for number, table in enumerate(tables):
        expected = diverse_search(log_softmax(table), groups, size, 0.7)
        same += expected == diverse_search(log_softmax(table), groups, size, 0.0)
        for group, right in enumerate(expected):
            hypotheses = found(jax.device_get(done), number * groups + group)
            assert [tokens for _, tokens in hypotheses] == [tokens for _, tokens in right]
            np.testing.assert_allclose(*([x[0] for x in y] for y in (hypotheses, right)), rtol=1e-4)
    assert same < len(tables) / 2  # the control: most differ without a penalty


def test_the_least_risk_by_hand(monkeypatch):
    score = sacrebleu.CHRF().sentence_score
    texts = ["Zwei Hunde spielen.", "Zwei Hunde  spielten im Schnee.", "Hunde Hunde Hunde", "", "A"]
    pairs = [[score(a, [b]).score for b in texts if b is not a] for a in texts]
    np.testing.assert_allclose(mean_chrf(texts), np.mean(pairs, axis=1), rtol=1e-5)
    # "ab" and "ac" share one of two letters and no pair of letters: chrF (1/2 + 0) / 2.
    texts = ["x", "ac", "ab", "ab"]
    np.testing.assert_allclose(mean_chrf(texts), [0, 50 / 3, 125 / 3, 125 / 3], rtol=1e-6)
    scores = np.float32([-1, -2, -3, -4])
    lists = np.arange(4)[:, None], np.ones(4, int), scores, np.zeros(4, bool)
    tokenizer = load().trained.predictor.target_tokenizer
    monkeypatch.setattr(tokenizer, "decode", lambda ids: texts[ids[0]])
    best = read_hypotheses(Hypotheses(*lists), tokenizer, "", 4, search="mbr")
    assert [each.text for each in best] == ["ab", "ac", "x"]
    np.testing.assert_allclose(best[0].score, 125 / 3, rtol=1e-6)


def load(**decode):
    return transformer.load("quickstart", {f"decode.{key}": each for key, each in decode.items()})


def test_samples_depend_on_seed_and_line_and_not_on_the_batch():
    run = load(search="sample", temperature=2.0)
    together = run.translate(LINES, num_best=3)
    alone = [run.translate([line], num_best=3)[0] for line in LINES[::-1]][::-1]
    assert [[x.text for x in best] for best in alone] == [[x.text for x in b] for b in together]
    assert len({each.text for line in together for each in line}) == 9
    more = run.translate(LINES[1:2], num_best=5, prefix=["Der"])[0]
    assert [each.text[:3] for each in more] == ["Der"] * 5
    assert load(search="sample", temperature=2.0, seed=1).translate(LINES, 3) != together
    # At temperature 0, all samples are the greedy translation.
    [greedy] = load(beam_size=1).translate(LINES[:1], num_best=1)
    [samples] = load(search="sample", temperature=0.0).translate(LINES[:1], num_best=2)
    assert [each.text for each in samples] == [greedy[0].text] * 2


@pytest.mark.full
def test_a_sample_of_a_line_joins_the_samples_of_its_sentences():
    run = load(search="sample", temperature=2.0, split_sentences="always")
    one, two = run.translate(["We sleep.", "We sleep. We sleep."], num_best=3)
    assert [x.text.replace(" ", "") for x in two] == [2 * x.text.replace(" ", "") for x in one]


def test_a_translator_of_an_older_version_still_searches_a_beam():
    saved = {"decode": {"search": "sample", "top_p": 1.0}}
    assert upgrade(saved, Path("run"))["decode"]["search"] == "auto"
    saved = {"decode": {"search": "sample", "epsilon": 0.0}, "format": 2}
    assert upgrade(saved, Path("run"))["decode"]["search"] == "sample"
