"""A translator that one device trained is used on several, which divide its work."""

import jax
import numpy as np
import pytest
from device_processes import on_devices

from runs import toy_config
from transformer.runs.run import Run
from transformer.tasks.translation import TranslationTask
from transformer.training.loop import Trainer
from transformer.training.run import TrainingRun


def train_translator(folder):
    changes = {"train.steps": 4, "train.evaluate_every": 4, "evaluate.max_sentences": 1}
    config = toy_config(folder.parent / "cache", **changes, **{"evaluate.checkpoint": "last"})
    task = TranslationTask(config)
    folder.mkdir(exist_ok=True)
    Run(folder, config).claim()
    task.save_assets(folder)
    assert Trainer([TrainingRun(task, config, folder)]).run()


def use_everywhere(folder):
    """Checks that a translator on all devices divides its work, and finds what one device does."""
    run = Run(folder).load_trained()
    translator = run.predictor
    variables = jax.device_put(jax.device_get(run.variables), jax.devices()[0])
    texts = ["a b c", "d", "e f a", "b", "c c", "f a b e", "d e", "a"]
    finished, continue_search = [], translator.search._continue

    def spy(*arguments):
        finished.append(continue_search(*arguments).finished)
        return continue_search(*arguments)

    translator.search._continue = spy
    together = translator.translate(run.variables, texts)
    assert {len(x.sharding.device_set) for x in finished} == {4}
    assert all(4 * x.addressable_shards[0].data.size == x.size for x in finished), finished
    alone = translator.translate(variables, texts)
    assert [best[0].text for best in together] == [best[0].text for best in alone]
    for a, b in zip(together, alone, strict=True):
        np.testing.assert_allclose(a[0].score, b[0].score, rtol=1e-5)
    scores = [list(translator.score(where, texts, texts)) for where in (run.variables, variables)]
    np.testing.assert_allclose(*scores, rtol=1e-5)


@pytest.mark.slow
def test_a_translator_divides_sentences_among_devices(tmp_path):
    train_translator(tmp_path / "run")
    on_devices(4, use_everywhere, tmp_path / "run")
