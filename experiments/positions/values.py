"""Computes the effects of positional encodings with the classes that the model uses."""

import dataclasses
import functools
import logging
import math
from collections.abc import Iterator, Mapping
from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Float64, Int, Real
from ml_collections import ConfigDict

from transformer.errors import UserError
from transformer.model.build import check_names, has_heads
from transformer.model.config import ModelConfig
from transformer.model.positions.additive import BASE
from transformer.model.positions.base import LAYER_HOOKS, STACK_HOOKS, use_hooks
from transformer.model.positions.registry import REGISTRY, acts_in, check_encodings, fitting_names
from transformer.runs.run import TrainedRun

logger = logging.getLogger(__name__)

AS_INITIALISED = "as initialised"
PAIRS = {  # (sine, cosine) dimensions that rotate together, given their total number
    "2i and 2i + 1": lambda width: np.arange(width).reshape(-1, 2),
    "i and i + D/2": lambda width: np.arange(width).reshape(2, -1).T,
}


@dataclasses.dataclass(frozen=True)
class Encoding:
    """A positional encoding at one place in a model."""

    name: str  # a key of REGISTRY
    config: ModelConfig
    params: Mapping[str, Any]  # the parameters at this place
    origin: str = ""  # origin of the parameters, or '' if there are none
    place: str = ""  # such as "decoder layer 1"; '' if all places are equal
    past_only: bool = False  # whether attention is causal, as in a decoder

    @property
    def hooks(self) -> list[str]:
        """The hooks that the encoding implements, in the order of STACK_HOOKS and LAYER_HOOKS."""
        return [hook for hook in (*STACK_HOOKS, *LAYER_HOOKS) if acts_in(self.name, [hook])]

    def table(self, count: int) -> Real[np.ndarray, "L D"]:
        """Returns the vectors that are added to the embeddings at positions 0 to `count - 1`."""
        return self._call("add", jnp.zeros((1, count, self.config.d_model)), jnp.arange(count))[0]

    def bias(self, count: int) -> Real[np.ndarray, "H L L"]:
        """Returns the biases that are added to the scores of queries (rows) and keys (columns)."""
        return self._call("bias", jnp.arange(count), jnp.arange(count))

    def rotated(self, vectors: Real[np.ndarray, "N K"], count: int) -> Real[np.ndarray, "N L K"]:
        """Returns the first head's queries or keys, with the rotation of each position applied."""
        shape = (len(vectors), count, self.config.num_heads, self.config.head_width)
        heads = jnp.broadcast_to(jnp.asarray(vectors, jnp.float32)[:, None, None], shape)
        return self._call("rotate", heads, jnp.arange(count))[:, :, 0]

    def vectors(
        self, hook: str, count: int
    ) -> tuple[Int[np.ndarray, "M"], Real[np.ndarray, "H M K"]]:
        """Returns distances (key minus query, in tokens), and a vector for each distance.

        The vectors of `score`, which must be linear in the query, are added to keys. The vectors of
        `value_bias` are added to values.
        """
        heads, width = self.config.num_heads, self.config.head_width
        query = jnp.array([count - 1 if self.past_only else count // 2])
        keys = jnp.arange(count)
        if hook == "score":
            # If queries are standard basis vectors, each score is one component of the vector.
            units = jnp.broadcast_to(jnp.eye(width)[:, None, None], (width, 1, heads, width))
            vectors = self._call(hook, units, query, keys)[:, :, 0].transpose(1, 2, 0)
        else:
            units = jnp.broadcast_to(jnp.eye(count)[:, None, None], (count, heads, 1, count))
            vectors = self._call(hook, units, query, keys)[:, 0].transpose(1, 0, 2)
        return np.asarray(keys - query), vectors

    def _call(self, hook: str, *arguments: Any) -> np.ndarray:
        # As in a model, layer hooks are bidirectional: only the mask makes a decoder causal.
        module = REGISTRY[self.name](self.config, hook in LAYER_HOOKS or not self.past_only)
        call = functools.partial(module.apply, method=hook)
        return np.asarray(jax.jit(call)({"params": self.params}, *arguments))


def encodings(config: ModelConfig, seed: int, trained: TrainedRun | None) -> Iterator[Encoding]:
    """Yields the encodings that fit the config; trained encodings are yielded for each place."""
    for name in fitting_names(config):
        try:
            sizes = with_one_encoding(config, name)
        except UserError as error:
            logger.warning(f"{name} is not drawn: {error}")
            continue
        if places := _trained_places(sizes, trained, name) if trained else []:
            yield from places
            continue
        params = initial_params(sizes, name, seed)
        origin = AS_INITIALISED if params else ""
        if acts_in(name, ["bias"]):
            yield Encoding(name, sizes, params, origin, "encoder")
            yield Encoding(name, sizes, params, origin, "decoder", past_only=True)
        else:
            yield Encoding(name, sizes, params, origin)


def model_config(settings: ConfigDict) -> ModelConfig:
    """Returns a Transformer config with the dimensions in `config.model`, or raises UserError."""
    fields = (field.name for field in dataclasses.fields(ModelConfig))
    values = {name: settings[name] for name in fields if name in settings}
    if not has_heads(settings):  # num_heads has no effect, and may not divide d_model
        heads = math.gcd(values["d_model"], values["num_heads"])
        values |= {"num_heads": heads, "num_kv_heads": 0, "head_size": 0}
    # All encodings are drawn, regardless of the model's own encodings and number of layers.
    values |= {"architecture": "transformer", "num_encoder_layers": 1, "num_decoder_layers": 1}
    values |= {"source_vocab_size": 1, "target_vocab_size": 1}
    checked = with_one_encoding(ModelConfig(**values), "none")
    check_names(checked)
    return checked


def with_one_encoding(config: ModelConfig, name: str, **changes: Any) -> ModelConfig:
    """Returns the config with `changes` and one encoding; raises UserError if it is invalid."""
    names = {"positions": name, "encoder_positions": "", "decoder_positions": ""}
    changed = dataclasses.replace(config, **names, cross_positions="none", **changes)
    check_encodings(changed)
    return changed


def initial_params(config: ModelConfig, name: str, seed: int) -> Mapping[str, Any]:
    """Returns the initial parameters of an encoding."""
    init = jax.jit(functools.partial(REGISTRY[name](config).init, method=use_hooks))
    return init(jax.random.key(seed)).get("params", {})


def _trained_places(config: ModelConfig, trained: TrainedRun, name: str) -> list[Encoding]:
    """Returns the encoding at each place where a trained model has parameters for it."""
    by_path: dict[tuple[str, ...], dict] = {}
    for path, value in flax.traverse_util.flatten_dict(trained.variables["params"]).items():
        for depth, part in enumerate(path):
            if part == name and path[depth - 1].endswith("positions"):
                by_path.setdefault(path[:depth], {})[path[depth + 1 :]] = value
    steps = ", ".join(f"{step:,}" for step in sorted(trained.steps))
    origin = f"trained, {'step' if len(trained.steps) == 1 else 'mean of steps'} {steps}"
    places = []
    for path, flat in by_path.items():
        params = flax.traverse_util.unflatten_dict(flat)
        scanned = path[-3:-2] in (("encoder_layers",), ("decoder_layers",))
        each = {None: params}
        if scanned and not config.share_layers:
            depth = len(jax.tree.leaves(params)[0])
            each = {i: jax.tree.map(lambda x, i=i: x[i], params) for i in range(depth)}
        for layer, of_layer in each.items():
            place, past_only = _place(path, layer, config.share_layers)
            places.append(Encoding(name, config, of_layer, origin, place, past_only))
    return places


def _place(path: tuple[str, ...], layer: int | None, shared: bool) -> tuple[str, bool]:
    """Returns the place of a SumOfPositions as text, and whether attention is causal there."""
    if path[-1] != "positions":  # shared by a whole stack, such as "encoder_positions"
        stack = path[-1].removesuffix("_positions")
        return ("cross-attention" if stack == "cross" else stack), stack == "decoder"
    attention, (stack, _, number) = path[-2], path[-3].partition("_layers")
    layer = int(number.removeprefix("_")) if layer is None and number else layer
    place = f"{stack}, all layers" if shared or layer is None else f"{stack} layer {layer + 1}"
    if attention == "cross_attention":
        return f"{place}, cross-attention", False
    return place, stack == "decoder"


# -- the linear map from a position's encoding to the encoding k tokens later
#
# For sines and cosines of angles w p, the same matrix M_k for all p rotates each pair by w k:
#
#     sin(w (p + k)) =  cos(w k) sin(w p) + sin(w k) cos(w p)
#     cos(w (p + k)) = -sin(w k) sin(w p) + cos(w k) cos(w p)
#
# Source: Vaswani et al. 2017, section 3.5: "for any fixed offset k, PE_{pos+k} can be represented
# as a linear function of PE_pos".


def offset_rotation(pairs: str, width: int, offset: int) -> Float64[np.ndarray, "D D"]:
    """Returns the matrix M_k for an offset of k tokens and one of PAIRS."""
    sines, cosines = PAIRS[pairs](width).T
    angles = offset / BASE ** (np.arange(0, width, 2) / width)
    rotation = np.zeros((width, width))
    rotation[sines, sines] = rotation[cosines, cosines] = np.cos(angles)
    rotation[sines, cosines] = np.sin(angles)
    rotation[cosines, sines] = -np.sin(angles)
    return rotation


def offset_errors(table: Float[np.ndarray, "L D"], pairs: str, offset: int) -> np.ndarray:
    """Returns the largest error over dimensions of pe(p + k) = M_k pe(p), for each p."""
    table = np.asarray(table, np.float64)
    rotation = offset_rotation(pairs, table.shape[1], offset)
    return np.abs(table[offset:] - table[:-offset] @ rotation.T).max(axis=1)
