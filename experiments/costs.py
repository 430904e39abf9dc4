"""What a model costs: parameters and floating-point operations."""

from typing import Any

import jax
import numpy as np

from transformer.model.config import ModelConfig


def count_parameters(params: Any) -> int:
    """Returns how many numbers are trained."""
    return sum(int(np.prod(x.shape)) for x in jax.tree.leaves(params))


def flops_per_token(params: Any, config: ModelConfig) -> int:
    """Returns the floating-point operations of training on one target token.

    A product with a weight is a multiplication and an addition, in the forward pass and twice
    in the backward one. Counted are the products of all layers' weights and of the logits, with
    as many source as target tokens; attention's own products, small for sentences, are not.

    Source: Kaplan et al. 2020, "Scaling Laws for Neural Language Models", section 2.1.
    """
    depths = {
        "encoder_layers": config.num_encoder_layers,
        "decoder_layers": config.num_decoder_layers,
    }
    weights = config.target_vocab_size * config.d_model
    for stack, depth in depths.items():
        layers = {name: layer for name, layer in params.items() if name.startswith(stack)}
        kernels = [
            int(np.prod(leaf.shape))
            for path, leaf in jax.tree.leaves_with_path(layers)
            if jax.tree_util.keystr(path, simple=True, separator="/").endswith("kernel")
        ]
        weights += sum(kernels) * (depth if config.share_layers else 1)
    return 6 * weights
