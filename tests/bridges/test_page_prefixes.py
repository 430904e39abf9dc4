"""A page that holds its model forces, explains and branches translations as the run does."""

import jax
import numpy as np
import pytest

import transformer
from chromium import opened
from transformer.data.pairs import Pair
from transformer.data.tokenizer import EOS_ID
from transformer.decoding.search import gnmt_penalty
from transformer.inference.prefixes import Prefix

pytestmark = pytest.mark.browser
LINE = "My letter lay on this chair two days ago."
TARGET = "Mein Brief hat vor zwei Tagen auf diesem Stuhl gelegen."
CAPITALS = "YOUR BROTHER SLEEPS ON THE CHAIR."
BEGUN = {"Meine Br": LINE, "Mein ": LINE, TARGET: LINE, "dein bru": CAPITALS}  # prefix -> line
BEGUN |= {"Der Brief lagerungsbedingterwei": LINE, "Herr Zorkan": "My brother Zorkan sleeps."}
TEXTS = "JSON.parse(byId('model').textContent), byId('weights').textContent"
ANSWER = f"""(asked) => (window.offline ??= new OfflineTranslator({TEXTS}))
  .answer(...asked, new AbortController().signal)"""


def close(actual, right):
    np.testing.assert_allclose(actual, right, rtol=0, atol=2e-3)


@pytest.fixture(scope="module")
def run():
    return transformer.load("quickstart")


@pytest.fixture(scope="module")
def ask(run, chromium, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page") / "page"
    run.export("html", folder)
    with opened(chromium, folder / "index.html") as page:
        yield lambda name, **asked: page.evaluate(ANSWER, [name, asked])


def begun(run, lines, prefixes):
    model, variables = run.trained.predictor, run.trained.variables
    return model.translate(variables, lines, num_best=4, prefixes=prefixes)


def test_a_translation_begins_as_the_reader_says(run, ask):
    ours = begun(run, [*BEGUN.values()], [*map(Prefix, BEGUN)])
    for (prefix, line), right in zip(BEGUN.items(), ours, strict=True):
        [found] = ask("translate", texts=[line], prefixes=[prefix], num_best=4)["translations"]
        assert [each["text"] for each in found] == [each.text for each in right]
        close([each["score"] for each in found], [each.score for each in right])


def test_sentences_of_a_prefix_are_dealt_to_segments(run, ask):
    dealt = [Prefix("Wir schlafen nicht.", is_whole=True), Prefix("Ihr")]
    (first, *_), (second, *_) = begun(run, ["We sleep.", "You work."], dealt)
    asked = {"texts": ["We sleep. You work."], "prefixes": ["Wir schlafen nicht. Ihr"]}
    [[found]] = ask("translate", **asked, num_best=1)["translations"]
    assert found["text"] == f"{first.text} {second.text}"
    close(found["score"], first.score + second.score)


@pytest.mark.parametrize("temperature", [1, 2.5])
def test_next_tokens_are_those_of_the_softmax(temperature, run, ask):
    model, asked = run.trained.predictor, {"texts": [LINE], "targets": [TARGET], "num_best": 3}
    [found] = ask("next_tokens", **asked, temperature=temperature)["next_tokens"]
    sources, targets = model.encode_pairs([Pair(LINE, TARGET)])
    inputs, ids = model.inputs(model.make_batch(sources, targets, 1, 16)), [*targets[0], EOS_ID]
    logits = model.model.apply(run.trained.variables, *inputs)[0, : len(ids)]
    right = np.array(jax.nn.log_softmax(logits / temperature))
    assert [each["token"] for each in found] == model.target_tokenizer.pieces(ids)
    close([each["log_prob"] for each in found], right[range(len(ids)), ids])
    close([each["entropy"] for each in found], -(np.exp(right) * right).sum(axis=1))
    best = [[each["log_prob"] for each in token["best"]] for token in found]
    close(best, np.sort(right)[:, :-4:-1])


def test_alternatives_and_the_beam_are_translations_with_their_scores(run, ask):
    _, found = ask("alternatives", text=LINE, target=TARGET, position=2, num_best=2)["alternatives"]
    assert (found["word"], found["prefix"]) == ("haben", "Mein Brief haben ")
    ends, kept = {found["text"]: found["score"]}, [""]
    for step in ask("beam", text=LINE)["steps"]:
        texts = [(kept[each["parent"]] + each["token"], each) for each in step]
        ended = {text: each["score"] for text, each in texts if each["fate"] == "finished"}
        ends |= {text[1:-4].replace("▁", " "): score for text, score in ended.items()}
        kept = [text for text, each in texts if each["fate"] == "kept"]
    assert {each.text for each in begun(run, [LINE], [])[0]} <= ends.keys()
    scores = run.score([LINE] * len(ends), [*ends])
    close([*ends.values()], [each.log_prob / gnmt_penalty(each.tokens, 0.6) for each in scores])
