"""Translators of any number of devices are used, and go on, with any other number of them."""

import hashlib
import json
import shutil

import jax
import numpy as np
import pytest
from device_processes import on_devices

from runs import toy_config
from transformer.runs import workdir
from transformer.runs.run import Run
from transformer.tasks.translation import TranslationTask
from transformer.training.loop import Trainer
from transformer.training.run import TrainingRun


def translator_config(folder, steps=4):
    changes = {"train.steps": steps, "train.evaluate_every": 4, "evaluate.max_sentences": 1}
    return toy_config(folder.parent / "cache", **changes, **{"evaluate.checkpoint": "last"})


def train_translator(folder, steps=4):
    config = translator_config(folder, steps)
    task = TranslationTask(config)
    folder.mkdir(exist_ok=True)
    Run(folder, config).claim()
    task.save_assets(folder)
    assert Trainer([TrainingRun(task, config, folder)]).run()


def translate(folder, *outputs):
    """Writes the translations of a few texts, and the digest of the weights."""
    config = workdir.load_config(folder)
    run = Run(folder, config).load_trained()
    translator, variables = run.predictor, run.variables
    found = translator.translate(variables, ["a b c", "d", "e f a"])
    texts = [(best.text, best.tokens) for [best, *_] in found]  # scores differ by rounding
    bits = b"".join(np.asarray(x).tobytes() for x in jax.tree.leaves(variables))
    outputs[0].write_text(json.dumps([str(texts), hashlib.sha256(bits).hexdigest()]))


def use_everywhere(folder):
    """Checks that a translator on all devices divides its work, and finds what one device does."""
    run = Run(folder).load_trained()
    translator = run.predictor
    variables = jax.device_put(jax.device_get(run.variables), jax.devices()[0])
    texts = ["a b c", "d", "e f a", "b", "c c", "f a b e", "d e", "a"]
    finished, continue_search = [], translator._search._continue

    def spy(*arguments):
        finished.append(continue_search(*arguments).finished)
        return continue_search(*arguments)

    translator._search._continue = spy
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


def go_on(folder):
    train_translator(folder, 6)


@pytest.mark.slow
def test_a_translator_of_any_number_of_devices_is_used_and_goes_on_with_any_other(tmp_path):
    counts = (8, 2, 1)
    for trained in (8, 1):
        folder = tmp_path / f"trained_{trained}"
        on_devices(trained, train_translator, folder)
        outputs = [tmp_path / f"{trained}_{count}.json" for count in counts]
        for count, output in zip(counts, outputs, strict=True):
            on_devices(count, translate, folder, output)
        assert len({output.read_text() for output in outputs}) == 1
        weights = []
        for count in counts:
            copy = tmp_path / f"copy_{trained}_{count}"
            shutil.copytree(folder, copy)
            on_devices(count, go_on, copy)
            run = Run(copy, translator_config(copy, 6)).load_trained()
            variables, steps = run.variables, run.steps
            assert list(steps) == [6]
            weights.append(jax.tree.leaves(variables))
        for other in weights[1:]:
            for a, b in zip(weights[0], other, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
