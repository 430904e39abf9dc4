"""The effects of positional encodings as numbers, computed with the model's own classes."""

import dataclasses
import functools
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, Real

from transformer.errors import UserError
from transformer.model.config import ModelConfig
from transformer.model.positions.base import LAYER_HOOKS, STACK_HOOKS, use_hooks
from transformer.model.positions.registry import REGISTRY, acts_in, check_encodings
from transformer.workdir import TrainedRun

logger = logging.getLogger(__name__)

AS_INITIALISED = "as initialised"


@dataclasses.dataclass(frozen=True)
class Encoding:
    """A positional encoding at one place of a model.

    Attributes:
      name: a key of REGISTRY.
      config: of a model that has it.
      params: its parameters there.
      origin: where these come from; '' if it has none.
      place: where in the model, such as "decoder layer 1"; '' if all places are equal.
      past_only: whether keys stand on one side of their query, as in a decoder's self-attention.
    """

    name: str
    config: ModelConfig
    params: Mapping[str, Any]
    origin: str = ""
    place: str = ""
    past_only: bool = False

    @property
    def hooks(self) -> list[str]:
        """The hooks in which it acts, in the order of STACK_HOOKS and LAYER_HOOKS."""
        return [hook for hook in (*STACK_HOOKS, *LAYER_HOOKS) if acts_in(self.name, [hook])]

    @property
    def summary(self) -> str:
        """The first sentence of the docstring of its class; '' if it has none."""
        encoding = REGISTRY[self.name]
        text = " ".join((encoding.__doc__ or "").replace("`", "").split("\n\n")[0].split())
        # Of a class without words, a dataclass tells its fields.
        return "" if text.startswith(f"{encoding.__name__}(") else text.split(". ")[0].rstrip(".")

    def table(self, count: int) -> Real[np.ndarray, "L D"]:
        """Returns the vectors that are added to the embeddings of positions from zero."""
        return self._call("add", jnp.zeros((1, count, self.config.d_model)), jnp.arange(count))[0]

    def bias(self, count: int) -> Real[np.ndarray, "H L L"]:
        """Returns the numbers that are added to the scores of queries (rows) and keys."""
        return self._call("bias", jnp.arange(count), jnp.arange(count))

    def rotated(self, vectors: Real[np.ndarray, "N K"], count: int) -> Real[np.ndarray, "N L K"]:
        """Returns queries or keys as they are rotated at each position.

        It is the first head's.
        """
        shape = (len(vectors), count, self.config.num_heads, self.config.head_width)
        heads = jnp.broadcast_to(jnp.asarray(vectors, jnp.float32)[:, None, None], shape)
        return self._call("rotate", heads, jnp.arange(count))[:, :, 0]

    def vectors(
        self, hook: str, count: int
    ) -> tuple[Int[np.ndarray, "M"], Real[np.ndarray, "H M K"]]:
        """Returns distances, key minus query in tokens, and a vector for each.

        Of `score`, it is added to the keys that queries are compared with: the hook must be linear
        in
        the query. Of `value_bias`, it is added to the values.
        """
        heads, width = self.config.num_heads, self.config.head_width
        query = jnp.array([count - 1 if self.past_only else count // 2])
        keys = jnp.arange(count)
        if hook == "score":
            # Each unit vector as a query gives one dimension of what it is compared with.
            units = jnp.broadcast_to(jnp.eye(width)[:, None, None], (width, 1, heads, width))
            found = self._call(hook, units, query, keys)[:, :, 0].transpose(1, 2, 0)
        else:
            units = jnp.broadcast_to(jnp.eye(count)[:, None, None], (count, heads, 1, count))
            found = self._call(hook, units, query, keys)[:, 0].transpose(1, 0, 2)
        return np.asarray(keys - query), found

    def _call(self, hook: str, *arguments: Any) -> np.ndarray:
        # As in a model: inside the layers, only the mask knows that a decoder reads the past.
        module = REGISTRY[self.name](self.config, hook in LAYER_HOOKS or not self.past_only)
        call = functools.partial(module.apply, method=hook)
        return np.asarray(jax.jit(call)({"params": self.params}, *arguments))


def encodings(config: ModelConfig, seed: int, trained: TrainedRun | None) -> Iterator[Encoding]:
    """Yields every encoding of REGISTRY at each place where it differs.

    One that the trained model has comes with the parameters of each of its places; others are as
    they start.

    Args:
      config: the model's; which encodings it names does not matter.
      seed: of the parameters that start.
    """
    for name in REGISTRY:
        try:
            own = alone(config, name)
        except UserError as error:
            logger.warning(f"{name} is not drawn: {error}")
            continue
        if places := _trained_places(own, trained, name) if trained else []:
            yield from places
            continue
        params = initial_params(own, name, seed)
        origin = AS_INITIALISED if params else ""
        if acts_in(name, ["bias"]):
            yield Encoding(name, own, params, origin, "encoder")
            yield Encoding(name, own, params, origin, "decoder", past_only=True)
        else:
            yield Encoding(name, own, params, origin)


def alone(config: ModelConfig, name: str, **changes: Any) -> ModelConfig:
    """Returns the configuration with one encoding in both stacks, and with these changes.

    Raises:
      UserError: the sizes of the model rule the encoding out.
    """
    names = {"positions": name, "encoder_positions": "", "decoder_positions": ""}
    changed = dataclasses.replace(config, **names, cross_positions="none", **changes)
    check_encodings(changed)
    return changed


def initial_params(config: ModelConfig, name: str, seed: int) -> Mapping[str, Any]:
    """Returns the parameters that an encoding starts with."""
    init = jax.jit(functools.partial(REGISTRY[name](config).init, method=use_hooks))
    return init(jax.random.key(seed)).get("params", {})


def _trained_places(config: ModelConfig, trained: TrainedRun, name: str) -> list[Encoding]:
    """An encoding wherever a trained model has parameters of it."""
    found: dict[tuple[str, ...], dict] = {}
    for path, value in flax.traverse_util.flatten_dict(trained.variables["params"]).items():
        for depth, part in enumerate(path):
            if part == name and path[depth - 1].endswith("positions"):
                found.setdefault(path[:depth], {})[path[depth + 1 :]] = value
    places = []
    for path, flat in found.items():
        params = flax.traverse_util.unflatten_dict(flat)
        stacked = path[-3:-2] in (("encoder_layers",), ("decoder_layers",))
        if stacked and not config.share_layers:
            depth = len(jax.tree.leaves(params)[0])
            each = [jax.tree.map(lambda x, i=i: x[i], params) for i in range(depth)]
        else:
            each = [params]
        for number, own in enumerate(each):
            layer = number if stacked else None
            place, past_only = _place(path, layer, config.share_layers)
            places.append(Encoding(name, config, own, _origin(trained.steps), place, past_only))
    return places


def _origin(steps: Sequence[int]) -> str:
    """The checkpoints that parameters come from, in words."""
    listed = ", ".join(f"{step:,}" for step in sorted(steps))
    return f"trained, {'step' if len(steps) == 1 else 'mean of steps'} {listed}"


def _place(path: tuple[str, ...], layer: int | None, shared: bool) -> tuple[str, bool]:
    """A place in words, and whether only the past is read there.

    Args:
      path: of a SumOfPositions among the parameters.
      layer: number from zero, if the path does not tell it.
    """
    if path[-1] != "positions":  # of a whole stack, such as "encoder_positions"
        stack = path[-1].removesuffix("_positions")
        return ("cross-attention" if stack == "cross" else stack), stack == "decoder"
    attention, (stack, _, number) = path[-2], path[-3].partition("_layers")
    layer = int(number.removeprefix("_")) if layer is None and number else layer
    place = f"{stack}, all layers" if shared or layer is None else f"{stack} layer {layer + 1}"
    if attention == "cross_attention":
        return f"{place}, cross-attention", False
    return place, stack == "decoder"
