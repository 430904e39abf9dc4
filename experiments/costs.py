"""The cost of a model: parameters and floating-point operations."""

import jax
import numpy as np

from transformer.inference.base import Params
from transformer.model.architecture import Network


def count_parameters(params: Params) -> int:
    """Returns how many numbers are trained."""
    return sum(int(np.prod(x.shape)) for x in jax.tree.leaves(params))


def flops_per_token(params: Params, model: Network) -> int:
    """Returns the floating-point operations of training on one target token, or one that is read.

    A product with a weight is a multiplication and an addition, in the forward pass and twice
    in the backward one. Counted are the products of all layers' weights and of the logits, with
    as many source as target tokens; attention's own products, small for sentences, are not, nor
    is what a recurrent model or a classifier does once a text, nor the second pass of R-Drop.

    Args:
      model: the network.

    Source: Kaplan et al. 2020, "Scaling Laws for Neural Language Models", section 2.1.
    """
    return 6 * model.weights_per_token(params)
