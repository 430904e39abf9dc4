"""Training pictures are changed as the names of the changes say, each by itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import mnist
from transformer.model.vision.augment import CHANGES, MARGIN, augment, mix
from transformer.model.vision.inputs import from_patches, to_patches
from transformer.tasks.pictures import PictureTask

SIDE, SIZE, COUNT = 16, 4, 24
PIXELS = np.random.default_rng(0).integers(1, 256, (COUNT, SIDE, SIDE, 3), dtype=np.uint8)
PATCHES = to_patches(PIXELS, SIZE)


def changed(names, seed=0):
    return np.asarray(from_patches(augment(PATCHES, SIZE, names, jax.random.key(seed)), SIZE))


@pytest.mark.full
def test_without_a_change_pictures_stay_and_with_one_a_key_gives_the_same_again():
    np.testing.assert_allclose(changed([]), PIXELS, atol=1e-3)
    every = changed(CHANGES)
    np.testing.assert_array_equal(changed(CHANGES), every)
    assert not np.allclose(changed(CHANGES, seed=1), every)
    assert every.min() >= 0
    assert every.max() <= 255


def test_half_of_the_pictures_are_mirrored():
    pictures = changed(["flip"])
    mirrored = [np.allclose(p, q[:, ::-1], atol=0.1) for p, q in zip(pictures, PIXELS, strict=True)]
    same = [np.allclose(p, q, atol=0.1) for p, q in zip(pictures, PIXELS, strict=True)]
    assert sum(mirrored) + sum(same) == COUNT
    assert 0 < sum(mirrored) < COUNT


def test_a_crop_moves_a_picture_into_black_by_some_whole_pixels():
    most, (y, x) = SIDE // MARGIN, np.mgrid[:SIDE, :SIDE]
    slope = (10 * y + x + 20)[..., None]
    pictures = to_patches(np.repeat(slope.astype(np.uint8)[None], COUNT, axis=0), SIZE)
    moved = from_patches(augment(pictures, SIZE, ["crop"], jax.random.key(0)), SIZE)
    differences = (np.asarray(moved) - slope)[:, most:-most, most:-most].reshape(COUNT, -1)
    means = differences.mean(axis=1)  # ten times the rows plus the columns that it moved
    np.testing.assert_allclose(
        differences, np.broadcast_to(means[:, None], differences.shape), atol=0.01
    )
    np.testing.assert_allclose(means, means.round(), atol=0.01)
    assert np.abs(means).max() <= 11 * most + 0.01
    assert means.std() > 1


@pytest.mark.full
def test_a_mixture_is_of_two_pictures_and_its_loss_of_both_classes():
    config = mnist.get_config("digits")
    config.data.train_size, config.model.num_encoder_layers, config.train.mixup = 0, 1, 0.5
    task = PictureTask(config)
    params, batch, key = task.draw_params(jax.random.key(0)), task.plan[0], jax.random.key(3)
    of_mixture = jax.random.split(jax.random.fold_in(key, 1))[1]
    patches, share = mix(batch.source.patches, 0.5, of_mixture)
    assert 0 < share < 1
    ours = batch.source.patches.astype(float)
    np.testing.assert_allclose(patches, share * ours + (1 - share) * ours[::-1], rtol=1e-5)
    source = batch.source._replace(patches=patches)
    scores = task.predictor.classify({"params": params}, source).logits
    log_probs = np.asarray(jax.nn.log_softmax(scores))
    labels, rows = batch.labels - 1, jnp.arange(len(batch.labels))
    parts = (share, labels), (1 - share, labels[::-1])  # rows of padding have no label
    expected = sum(-part * log_probs[rows, each] * (each >= 0) for part, each in parts)
    hparams = {"label_smoothing": 0.0}
    found = task.loss(params, batch, hparams, key).loss
    assert float(found) == pytest.approx(float(expected.sum()), rel=1e-4)
