"""CTranslate2 computes what our models compute, or the export names what it cannot."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from apart import refusal

from tiny_models import tiny_model
from transformer.bridges.ctranslate2 import make_spec
from variants import VARIANTS

ctranslate2 = pytest.importorskip("ctranslate2")
PLAIN = {
    "post": {},
    "pre": {"norm_position": "pre"},
    "split": {"positions": "split"},
    "learned": {"positions": "learned"},
    "tied": {"tied_embeddings": "all"},
    "half tied": {"tied_embeddings": "decoder"},
    "geglu": {"activation": "geglu"},
    "silu": {"activation": "silu"},
    "scanned": {"scan_layers": True},
    "two cores": {
        **{"positions": "rotary", "norm_position": "pre", "norm": "rms", "activation": "swiglu"},
        **{"attention_bias": False, "tied_embeddings": "all", "norm_epsilon": 1e-5},
    },
}
ALL = PLAIN | {name: changes for name, (changes, *_) in VARIANTS.items()}


def write(model, variables, folder):
    """Writes the model; its tokens are the ids, as text."""
    config = model.config
    tokens = [
        [str(i) for i in range(n)] for n in (config.source_vocab_size, config.target_vocab_size)
    ]
    make_spec(config, variables["params"], *tokens).save(str(folder))


def log_probs(model, variables, source, target):
    """Our log-probabilities of a target, without its begin and with its end."""
    both = jnp.array([source]), jnp.array([target])
    logits = model.apply(variables, *both, *(jnp.ones(x.shape, bool) for x in both))
    return np.asarray(jax.nn.log_softmax(logits))[0]


@pytest.mark.full
@pytest.mark.parametrize("name", ALL)
def test_log_probabilities_are_ours_or_the_key_is_named(name, tmp_path):
    model, variables = tiny_model(**ALL[name])
    source, target = [5, 7, 11, 4, 13], [6, 9, 4, 16, 8, 12]
    if says := refusal(write, model, variables, tmp_path):
        assert name not in PLAIN
        assert says.startswith("CTranslate2 cannot compute model.")
        return
    made = ctranslate2.Translator(str(tmp_path), compute_type="float32")
    [score] = made.score_batch([[str(i) for i in source]], [[str(i) for i in target]])
    ours = log_probs(model, variables, [*source, 3], [2, *target])
    expected = ours[np.arange(len(target) + 1), [*target, 3]]
    np.testing.assert_allclose(score.log_probs, expected, rtol=0, atol=1e-4)
