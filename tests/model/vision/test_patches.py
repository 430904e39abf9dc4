"""The Transformer of pictures is Dosovitskiy et al. 2021, equation by equation, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import reference
from tiny_models import tiny_config
from transformer.inference.base import source_mask
from transformer.model.classifier import BagOfPatches, Classifier, CnnLstm
from transformer.model.vision.inputs import PictureText, from_patches, to_patches
from transformer.model.vision.patches import GridBias, grid_angles

B, CLASSES, WORDS = 3, 5, 4
CHANGES = {"num_encoder_layers": 2, "num_decoder_layers": 0, "norm_position": "pre"}
CHANGES |= {"d_model": 16, "num_heads": 2, "patch_size": 2, "activation": "gelu"}


def config_of(**changes):
    return tiny_config(**{**CHANGES, **changes})


def make_source(words=WORDS):
    draw = np.random.default_rng(0)
    patches = draw.integers(0, 256, (B, 9, 12), dtype=np.uint8)
    tokens = draw.integers(1, 17, (B, words), dtype=np.int32)
    tokens[1, words - 2 :] = 0  # padding, of a question that is shorter
    return PictureText(patches, tokens)


def init(model, source):
    """Parameters none of which is zero or one, as they would be when training starts."""
    params = jax.jit(model.init)(jax.random.key(0), source, source_mask(source))["params"]
    leaves = jax.tree.leaves(params)
    waves = [x + 0.1 * jnp.cos(jnp.arange(x.size)).reshape(x.shape) for x in leaves]
    return jax.tree.unflatten(jax.tree.structure(params), waves)


def expected_logits(p, config, patches, tokens):
    """The scores of the classes of one picture, from the equations, without padding."""
    p, own = reference.float64(p), reference.float64(p)["encoder"]
    embedding = own["source_embedding"]
    vectors = [embedding["class_token"]]
    for patch in patches:
        scaled = np.array([byte / 255 * 2 - 1 for byte in patch.astype(np.float64)])
        vectors.append(reference.linear(embedding["patches"], scaled))
    if len(tokens):
        words = embedding["words"]["table"][tokens] * np.sqrt(config.d_model)
        vectors = [v + embedding["segments"][0] for v in vectors]
        vectors += [w + embedding["segments"][1] for w in words]
    x = np.array(vectors)
    for i in range(len(x)):
        if config.positions == "learned":
            x[i] += own["encoder_positions"]["learned"]["table"][i]
        else:
            row, column = divmod(i - 1, 3)
            for half, place in enumerate((row, column)):
                for pair in range(config.d_model // 4):
                    angle = place / 10000 ** (2 * pair / (config.d_model // 2))
                    at = half * config.d_model // 2 + 2 * pair
                    x[i, at : at + 2] += np.sin(angle), np.cos(angle)
    everywhere = [list(range(len(x)))] * len(x)
    for n in range(config.num_encoder_layers):
        layer = own[f"encoder_layers_{n}"]

        def attend(x, layer=layer):
            attention = layer["self_attention"]
            return reference.multi_head_attention(attention, x, x, everywhere, config, "encoder")[0]

        def feed(x, layer=layer):
            return reference.feed_forward(layer["feed_forward"], x, config.activation)

        x = reference.residual(layer["self_attention_residual"], x, attend, config)
        x = reference.residual(layer["feed_forward_residual"], x, feed, config)
    x = reference.norm(own["encoder_norm"], x, config)
    return reference.linear(p["output"], x[0])


@pytest.mark.parametrize("words", [0, WORDS])
@pytest.mark.parametrize(
    "positions", [pytest.param("learned", marks=pytest.mark.full), "grid_sinusoidal"]
)
def test_the_scores_are_those_of_the_equations(positions, words):
    config, source = config_of(positions=positions), make_source(words)
    model = Classifier(config, CLASSES, "first")
    params = init(model, source)
    logits = model.apply({"params": params}, source, source_mask(source)).logits
    for row in range(B):
        tokens = source.tokens[row][source.tokens[row] > 0]
        expected = expected_logits(params, config, source.patches[row], tokens)
        np.testing.assert_allclose(logits[row], expected, rtol=2e-4, atol=2e-5)


def test_patches_are_squares_row_by_row_and_come_back():
    pixels = np.arange(2 * 6 * 6 * 3, dtype=np.uint8).reshape(2, 6, 6, 3)
    patches = to_patches(pixels, 2)
    assert patches.shape == (2, 9, 12)
    for i in range(9):
        row, column = divmod(i, 3)
        square = pixels[1, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        assert patches[1, i].tolist() == square.ravel().tolist()
    np.testing.assert_array_equal(from_patches(patches, 2), pixels)
    np.testing.assert_array_equal(from_patches(jnp.asarray(patches), 2), pixels)


def test_gradients_never_come_from_the_padding_of_a_question():
    config, source = config_of(positions="grid_rotary"), make_source()
    model = Classifier(config, CLASSES, "mean")
    params, mask = init(model, source), source_mask(source)
    assert mask.tolist()[1] == [True] * (10 + WORDS - 2) + [False] * 2

    def scores(table):
        encoder = params["encoder"]
        embedding = {**encoder["source_embedding"], "words": {"table": table}}
        tree = {**params, "encoder": {**encoder, "source_embedding": embedding}}
        return model.apply({"params": tree}, source, mask).logits[1].sum()

    gradient = jax.grad(scores)(params["encoder"]["source_embedding"]["words"]["table"])
    used = set(source.tokens[1].tolist()) - {0}
    assert {i for i, row in enumerate(gradient) if np.any(row)} == used


def test_a_rotated_score_depends_on_rows_and_columns_apart():
    config = config_of(positions="grid_rotary")
    angles = grid_angles(jnp.arange(10), 8, config, base=100.0)
    assert angles.shape == (10, 4)
    row, column = angles[:, :2], angles[:, 2:]
    np.testing.assert_allclose(row[1 + 4], row[1 + 3])  # the same row
    np.testing.assert_allclose(column[1 + 4], column[1 + 7])  # the same column
    np.testing.assert_allclose(row[1 + 3] - row[1], row[1 + 6] - row[1 + 3], rtol=1e-6)
    assert float(row[0, 0]) == -1.0  # the class token
    np.testing.assert_allclose(angles[1 + 3], [1, 0.1, 0, 0], rtol=1e-6)


def test_a_bias_is_one_of_each_distance_by_rows_and_columns_of_two_patches():
    encoding = GridBias(config_of(positions="grid_bias"))
    places = jnp.arange(12)  # the class token, nine patches and two words
    params = encoding.init(jax.random.key(0), places, places, method="bias")
    bias = encoding.apply(params, places, places, method="bias")
    table = params["params"]["table"]
    assert table.shape == (26, 2)
    assert bias.shape == (2, 12, 12)
    for i, j in np.ndindex(12, 12):
        (row, column), (other_row, other_column) = divmod(i - 1, 3), divmod(j - 1, 3)
        number = 25
        if 1 <= min(i, j) <= max(i, j) <= 9:
            number = 5 * (other_row - row + 2) + other_column - column + 2
        np.testing.assert_array_equal(bias[:, i, j], table[number])


@pytest.mark.parametrize("words", [0, WORDS])
@pytest.mark.parametrize("network", [BagOfPatches, CnnLstm])
def test_a_baseline_sees_pictures_and_questions_but_no_padding(network, words):
    model, source = network(config_of(), CLASSES), make_source(words)
    params, mask = init(model, source), source_mask(source)
    run = jax.jit(lambda source, mask: model.apply({"params": params}, source, mask).logits)
    logits = run(source, mask)
    assert logits.shape == (B, CLASSES)
    dark = source._replace(patches=np.zeros_like(source.patches))
    assert not np.allclose(run(dark, mask), logits)
    if words:
        other = source.tokens.copy()
        other[1, -1] = 3  # masked
        np.testing.assert_allclose(run(source._replace(tokens=other), mask), logits, atol=1e-6)
        other[1, 0] = 1 + other[1, 0] % 16
        assert not np.allclose(run(source._replace(tokens=other), mask)[1], logits[1])


def test_a_bag_of_patches_knows_no_places_and_a_convolution_does():
    order = np.random.default_rng(1).permutation(9)
    for network, knows in ((BagOfPatches, False), (CnnLstm, True)):
        model, source = network(config_of(), CLASSES), make_source(0)
        params, mask = init(model, source), source_mask(source)
        moved = source._replace(patches=source.patches[:, order])
        logits = [model.apply({"params": params}, each, mask).logits for each in (source, moved)]
        assert np.allclose(*logits, atol=1e-5) != knows
