"""Interventions by name do at the places that they name what they say."""

import numpy as np
import pytest

import transformer
from source_settings import refused
from transformer.inference import interventions
from transformer.inference.interventions import capture, means, places, read

TEXT, OTHER = "The old teacher gives the child a small dog.", "The dog sleeps in the garden."
GERMAN = "Der alte Lehrer gibt dem Kind einen kleinen Hund."


@pytest.fixture(scope="module")
def run():
    return transformer.load("quickstart")


def log_prob(run, target=GERMAN):
    [score] = run.score([TEXT], [target])
    return score.log_prob


def test_places_have_the_names_of_the_documentation(run):
    names = list(places(run.trained.predictor.model))
    assert len(names) == 2 + 2 * (4 * 2 + 4) + 2 * (8 * 2 + 6)
    select = interventions.select(["decoder.2.cross.head.*.weights", "encoder.embedding"],
                                  run.trained.predictor.model)  # fmt: skip
    heads = [f"decoder.2.cross.head.{head}.weights" for head in (1, 2, 3, 4)]
    assert select == ["encoder.embedding", *heads]


def test_patterns_of_weights_by_hand(run):
    def weights(what):
        with run.intervene({"*.head.*.weights": what}):
            return run.attention(TEXT, GERMAN).weights

    for kind, maps in weights("identity").items():
        if kind != "cross":
            np.testing.assert_allclose(maps, np.broadcast_to(np.eye(maps.shape[-1]), maps.shape))
    uniform = weights("uniform")
    np.testing.assert_allclose(uniform["cross"], 1 / uniform["cross"].shape[-1], rtol=1e-6)
    rows = uniform["decoder_self"]
    expected = np.tril(np.ones(rows.shape[-2:])) / np.arange(1, rows.shape[-1] + 1)[:, None]
    np.testing.assert_allclose(rows, np.broadcast_to(expected, rows.shape), rtol=1e-6)
    [row] = weights("previous")["decoder_self"][0, :1]
    np.testing.assert_allclose(row[1:], np.eye(len(row))[:-1])
    assert row[0, 0] == 1


def test_the_patch_of_the_same_text_changes_nothing_and_of_another_text_much(run):
    same, other = ("patch", (TEXT, GERMAN)), ("patch", (OTHER, GERMAN))
    before = log_prob(run)
    with run.intervene({"*": same}):
        np.testing.assert_allclose(log_prob(run), before, atol=1e-4)
    with run.intervene({"encoder.2.residual_after_feed_forward": other}):
        assert log_prob(run) < before - 5
    assert log_prob(run) == before  # after the block


def test_the_patch_of_a_word_replaces_it_in_the_translation(run):
    patch = {"encoder.embedding@teacher": ("patch", TEXT.replace("teacher", "woman"))}
    with run.intervene(patch, TEXT):
        assert run.translate([TEXT]) == [GERMAN.replace("Der alte Lehrer", "Die alte Frau")]
    with refused("names a word: give the text"), run.intervene(patch):
        pass
    with refused("'teacher' is no token or word of"), run.intervene(patch, OTHER):
        pass
    number = {"encoder.embedding@2": patch["encoder.embedding@teacher"]}
    with run.intervene(number):
        assert "Frau" in run.translate([TEXT])[0]


def test_means_are_over_all_tokens_of_all_texts(run):
    named = places(run.trained.predictor.model)
    pair = [named["encoder.1.self"], named["decoder.1.cross.head.2.weights"]]
    model = run.trained.predictor, run.trained.variables
    texts = [(TEXT, GERMAN), (OTHER, "Der Hund schläft im Garten.")]
    (long, map_1), (short, map_2) = sorted(
        capture(*model, read(*model, texts), pair), key=lambda x: -len(x[0])
    )[:2]
    assert len(long) > len(short)
    vector, weights = means(*model, read(*model, texts), pair)
    np.testing.assert_allclose(vector, np.concatenate([long, short]).mean(axis=0), rtol=1e-5)
    rows, columns = map_2.shape
    common = (map_1[:rows, :columns] + map_2) / 2
    np.testing.assert_allclose(weights[:rows, :columns], common, rtol=1e-5)
    np.testing.assert_allclose(weights[rows:], map_1[rows:], rtol=1e-5)


def test_scales_of_several_patterns_and_positions_combine(run):
    every = {"decoder.1.*": 1.0, "decoder.1.cross.head.2.output": 0.5}
    with run.intervene(every):
        half = log_prob(run)
    with run.intervene({"decoder.1.cross.head.2.output": 0.5}):
        np.testing.assert_allclose(log_prob(run), half, atol=1e-5)
    each = {f"decoder.1.cross.head.2.output@{i}": 0.5 for i in range(40)}
    with run.intervene(each):
        np.testing.assert_allclose(log_prob(run), half, atol=1e-5)
    assert abs(half - log_prob(run)) > 1e-3


def test_other_models_have_places_too(loaded):
    for name, place in (("language_model", "decoder.1.self"), ("classification", "encoder.1.self")):
        run = loaded[name]
        texts = ["one red", "red"]

        def answer(run=run, name=name):
            return run.score(["one red"]) if name == "language_model" else run.classify(["a b"], 2)

        before = answer()
        with run.intervene({place: ("mean", texts)}):
            assert answer() != before


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"encoder.3.self": "zero"}, "no place is named 'encoder.3.self': the nearest are encoder"),
        ({"encoder.1.self": "uniform"}, "'uniform' is for weights: give a place that ends with"),
        ({"encoder.1.self": "nothing"}, "'nothing' is no intervention: give zero, a number"),
    ],
)
def test_a_mistake_is_named(run, changes, says):
    with refused(says), run.intervene(changes):
        pass
