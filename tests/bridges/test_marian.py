"""`MarianMTModel` computes what our models compute, or the export names what it cannot."""

import importlib.util
import json
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from apart import refusal

from tiny_models import tiny_config, tiny_model
from transformer.bridges.marian import make_arrays, make_config
from variants import VARIANTS

PLAIN = {
    "sinusoidal": {},
    "split": {"positions": "split"},
    "tied": {"tied_embeddings": "all"},
    "half tied": {"tied_embeddings": "decoder"},
    "gelu": {"activation": "gelu"},
    "silu": {"activation": "silu"},
    "without biases": {"attention_bias": False},
    "grouped keys": {"num_heads": 2, "num_kv_heads": 1},
    "deeper": {"num_encoder_layers": 3, "num_decoder_layers": 1},
    "pre": {"norm_position": "pre"},
}
ALL = PLAIN | {name: changes for name, (changes, *_) in VARIANTS.items()}
SOURCE, TARGET = [5, 7, 11, 4, 13, 3], [2, 6, 9, 4, 16, 8, 12]
# In a process without this package, for the models of all folders.
THEIRS = """
import pathlib
import sys
import numpy
import torch
from transformers import MarianMTModel

assert not any(name.split(".")[0] in ("jax", "flax") for name in sys.modules)
source, target = (torch.tensor([[int(i) for i in text.split()]]) for text in sys.argv[2:])
for folder in pathlib.Path(sys.argv[1]).iterdir():
    model = MarianMTModel.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        answer = model(input_ids=source, decoder_input_ids=target, output_attentions=True)
    cross = numpy.stack([x.numpy()[0] for x in answer.cross_attentions])
    numpy.savez(folder / "found.npz", logits=answer.logits.numpy()[0], cross=cross)
"""


FIELDS = {name: {"norm_epsilon": 1e-5, **changes} for name, changes in ALL.items()}
REFUSALS = {name: refusal(make_config, tiny_config(**fields)) for name, fields in FIELDS.items()}


def save(model, variables, folder):
    config = make_config(model.config) | {"pad_token_id": 0, "eos_token_id": 3}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    arrays = make_arrays(model.config, variables["params"])
    data = safetensors.numpy.save(arrays, {"format": "pt"})
    (folder / "model.safetensors").write_bytes(data)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """A folder with what `MarianMTModel` computes of each model that it can compute."""
    if not all(map(importlib.util.find_spec, ("transformers", "torch"))):
        pytest.skip("needs transformers and torch")
    root = tmp_path_factory.mktemp("marian")
    for name, fields in FIELDS.items():
        if not REFUSALS[name]:
            save(*tiny_model(**fields), root / name)
    numbers = (" ".join(map(str, ids)) for ids in (SOURCE, TARGET))
    command = [sys.executable, "-c", THEIRS, str(root), *numbers]
    subprocess.run(command, check=True, cwd=root)
    return root


@pytest.mark.parametrize("name", [name for name in ALL if REFUSALS[name]])
def test_what_marian_cannot_compute_is_named(name):
    assert REFUSALS[name].startswith("Marian cannot compute model.")


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in ALL if not REFUSALS[name]])
def test_logits_and_attention_are_ours(name, found):
    model, variables = tiny_model(**FIELDS[name])
    both = jnp.array([SOURCE]), jnp.array([TARGET])
    masks = (jnp.ones(x.shape, bool) for x in both)
    logits, sown = model.apply(variables, *both, *masks, mutable="intermediates")
    cross = model.sown_attention(sown["intermediates"], "weights")["cross"]
    with np.load(found / name / "found.npz") as theirs:
        np.testing.assert_allclose(theirs["logits"], logits[0], rtol=0, atol=2e-5)
        np.testing.assert_allclose(theirs["cross"], np.stack(cross)[:, 0], rtol=0, atol=1e-5)
