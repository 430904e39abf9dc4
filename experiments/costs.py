"""What a model costs: parameters and floating-point operations."""

from typing import Any

import jax
import numpy as np

from transformer.model.classifier import BagOfEmbeddings, Classifier


def count_parameters(params: Any) -> int:
    """Returns how many numbers are trained."""
    return sum(int(np.prod(x.shape)) for x in jax.tree.leaves(params))


def flops_per_token(params: Any, model: Any) -> int:
    """Returns the floating-point operations of training on one target token, or one that is read.

    A product with a weight is a multiplication and an addition, in the forward pass and twice
    in the backward one. Counted are the products of all layers' weights and of the logits, with
    as many source as target tokens; attention's own products, small for sentences, are not, nor
    is what a recurrent model or a classifier does once a text.

    Args:
      model: the network.

    Source: Kaplan et al. 2020, "Scaling Laws for Neural Language Models", section 2.1.
    """
    if isinstance(model, BagOfEmbeddings):
        return 0  # it looks up and adds
    config = model.config
    if isinstance(model, Classifier):
        params = params["encoder"]
    logits = config.target_vocab_size * config.d_model if config.has_decoder else 0
    if config.kind == "recurrent":
        return 6 * (logits + _recurrent_kernels(params))
    depths = {
        "encoder_layers": config.num_encoder_layers,
        "decoder_layers": config.num_decoder_layers,
    }
    weights = logits
    for stack, depth in depths.items():
        layers = {name: layer for name, layer in params.items() if name.startswith(stack)}
        weights += _kernels(layers) * (depth if config.share_layers else 1)
    return 6 * weights


def _kernels(params: Any) -> int:
    """The numbers in the kernels of a tree of parameters."""
    return sum(
        int(np.prod(leaf.shape))
        for path, leaf in jax.tree.leaves_with_path(params)
        if jax.tree_util.keystr(path, simple=True, separator="/").endswith("kernel")
    )


def _recurrent_kernels(params: Any) -> int:
    """The numbers in the kernels that a recurrent model multiplies with for each token.

    The kernel of its first states works once a sentence, that of additive scores for each pair of
    tokens, as attention's own products do.
    """
    score = params.get("attention", {}).get("score", {})
    return _kernels(params) - _kernels(params.get("first_states", {})) - _kernels(score)
