"""What somebody adds to a registry, as README says, is met by the tests over it as they stand."""

import os
import re
import subprocess
import sys

import pytest

from places import ROOT

# As they would stand in layers.py and positions/: activations, one of them gated, and encodings
# without parameters, with those of `setup`, and with those of an `nn.compact` hook.
MADE_UP = """
def pytest_configure(config):
    import flax.linen as nn
    import jax
    import jax.numpy as jnp
    from transformer.model import layers
    from transformer.model.positions import base, registry

    class Wobble(base.NoPositions):
        def bias(self, query_positions, key_positions):
            distances = query_positions[:, None] - key_positions
            heads = jnp.arange(1, self.config.num_heads + 1)
            return jnp.sin(heads[:, None, None] * distances)

    class Tuned(base.NoPositions):
        def setup(self):
            shape = (self.config.num_heads,)
            self.slopes = self.param("slopes", nn.initializers.normal(1.0), shape)

        def bias(self, query_positions, key_positions):
            return self.slopes[:, None, None] * (query_positions[:, None] - key_positions)

        def add(self, embeddings, positions):
            return embeddings + jnp.sin(positions)[..., None] * self.slopes.sum()

    class Compacted(base.NoPositions):
        @nn.compact
        def score(self, queries, query_positions, key_positions):
            width = self.config.head_width
            table = self.param("table", nn.initializers.normal(1.0), (width, width))
            distances = jnp.sin(1.0 * (query_positions[:, None] - key_positions))
            return jnp.einsum("BLHK,KJ,LM->BHLM", queries, table, distances)

    added = {"wobble": Wobble, "tuned": Tuned, "compacted": Compacted}
    registry.REGISTRY.update(added)
    layers.ACTIVATIONS.update(mish=(jax.nn.mish, False), mishglu=(jax.nn.mish, True))
"""
FILES = ("layers", "transformer", "stepwise", "decoder_alone", "model_config", "positions")
OVER_ALL = ("registry_has_its_pictures", "are_as_initialised", "hands_of_each", "no_last_position",
            "hold_every_choice", "with_all_choices")  # fmt: skip
ADDED = ("wobble", "tuned", "compacted", "mish", "mishglu")
# Of what is added to the encodings, and to the activations.
ENCODINGS = {
    "test_stepwise_logits_are_the_full_passs_on_each_hypothesis_own_history",
    "test_neither_the_tokens_nor_the_amount_of_padding_matter",
    "test_packed_documents_are_read_as_if_each_stood_alone",
    "test_every_choice_the_error_offers_is_accepted",
}
ACTIVATIONS = {
    "test_feed_forward_is_equation_2_with_any_activation",
    "test_the_model_equals_the_papers_equations_in_float64",
    "test_every_choice_the_error_offers_is_accepted",
}


@pytest.mark.slow
# A process of its own, since the tests over a registry are made when their files are read: 20 s.
def test_what_someone_adds_is_met_by_all_tests_over_its_registry(tmp_path):
    (tmp_path / "made_up.py").write_text(MADE_UP)
    files = [f"tests/model/test_{name}.py" for name in FILES]
    drawn = ("position_pictures", "position_parameters", "phasors")
    files += [f"tests/experiments/positions/test_{name}.py" for name in drawn]
    # Which cases of a registry are slow depends on what is in it.
    options = ["-q", "-rp", "-m", "", "-p", "made_up", "-p", "no:cacheprovider"]
    # Of all models with such an activation, those with one encoding are enough here.
    over_all = " or ".join((*OVER_ALL, "wobble", "tuned", "compacted"))
    others = "learned or alibi or relative or split or rotary or none-"
    twice = "(own_history and (pre or both)) or stepwise_logits_are_those"
    chosen = f"({over_all} or (mish and not ({others}))) and not ({twice})"
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-k", chosen, *files],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    passed = re.findall(r"^PASSED \S+::(\w+)(?:\[(.*)\])?$", ran.stdout, re.MULTILINE)
    for added in ADDED:
        met = {test for test, case in passed if added in re.split(r"\W", case)}
        assert met >= (ACTIVATIONS if added.startswith("mish") else ENCODINGS), added
    for part in OVER_ALL:
        assert any(part in test for test, _ in passed), part
