"""A model whose scores are not numbers says so, with the line, in every mode."""

import jax
import jax.numpy as jnp
import pytest

from runs import toy_config
from transformer.decoding.sampling import NOT_FINITE, SamplingRule, draw_tokens
from transformer.errors import RunError
from transformer.tasks import REGISTRY
from transformer.tasks.classification import ClassificationTask
from transformer.tasks.language_model import LanguageModelTask


def broken(variables):
    """The same variables, with no numbers in them."""
    return jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), variables)


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    task = REGISTRY["translation"](toy_config(tmp_path_factory.mktemp("cache")))
    return task, {"params": task.draw_params(jax.random.key(0))}


def refused(line: int, what: str):
    return pytest.raises(RunError, match=f"^line {line} has no {what}: .* lower config.optim")


def test_a_translation_that_was_not_found_names_its_line(translator):
    task, variables = translator
    with refused(8, "translation"):
        task.predictor.translate(broken(variables), ["", "a b"], numbers=[7, 8])
    with refused(7, "score"):
        list(task.predictor.score(broken(variables), ["a", "b"], ["a", "b"], first_line=7))
    assert task.predictor.translate(variables, ["", "a b"])[1]  # the control


def test_a_broken_run_of_a_vmapped_batch_leaves_the_others_their_translations(translator):
    task, variables = translator
    both = jax.tree.map(lambda x: jnp.stack([x, jnp.full_like(x, jnp.nan)]), variables)
    whole, spoilt = task.predictor.translate_stacked(both, ["a b"])
    assert whole[0][0].tokens > 0
    assert (spoilt[0][0].text, spoilt[0][0].tokens) == ("", 0)


def test_a_token_drawn_from_no_numbers_is_none():
    logits = jnp.array([[0.0, 1.0], [jnp.nan, 1.0], [jnp.inf, 0.0], [-jnp.inf, 2.0]])
    keys = jax.random.split(jax.random.key(0), 4)
    for temperature in (0.0, 1.0):
        drawn = draw_tokens(logits, keys, SamplingRule(temperature, 0, 1.0))
        assert [token == NOT_FINITE for token in drawn] == [False, True, True, False]


@pytest.mark.parametrize("search", ["sample", "beam"])
def test_a_language_model_writes_and_scores_nothing_without_numbers(translator, search, tmp_path):
    changes = {"data.context": 12, "decode.max_new_tokens": 3, "decode.search": search}
    config = toy_config(tmp_path, **changes)
    generator = LanguageModelTask.without_text(config).make_generator(
        translator[0].predictor.target_tokenizer
    )
    variables = {"params": jax.jit(generator.init_params)(jax.random.key(0))}
    with refused(7, "text"):
        generator.write(broken(variables), ["a", "b"], numbers=[7, 8])
    with refused(7, "score"):
        list(generator.score(broken(variables), ["a", "b"], first_line=7))
    if search == "sample":
        with refused(1, "text"):
            list(generator.stream(broken(variables), "a"))
    assert len(generator.write(variables, ["a", "b"])) == 2  # the control


def test_a_classifier_names_no_class_without_numbers(translator, tmp_path):
    config = toy_config(tmp_path, **{"data.max_tokens": 16})
    tokenizer = translator[0].predictor.source_tokenizer
    classifier = ClassificationTask.without_text(config).make_classifier(tokenizer, ["no", "yes"])
    variables = {"params": jax.jit(classifier.init_params)(jax.random.key(0))}
    with refused(7, "class"):
        classifier.predict(broken(variables), ["a", "b"], first_line=7)
    assert {best.label for best in classifier.predict(variables, ["a"])[0]} == {"no", "yes"}
