"""Exports a translation model as two ONNX graphs, for ONNX Runtime and other inference engines.

The encoder graph returns the keys and values for the decoder's cross-attention. The decoder graph
takes one or more new tokens per sentence, and the keys and values of all earlier tokens, so that it
can process a whole target sentence at once, or one token per step. The batch size and the sentence
lengths are dynamic.

Source: https://onnx.ai/onnx/operators
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from transformer.bridges import layers, reader
from transformer.bridges.layers import GATED, HALVES, layer_arrays, position_table
from transformer.data.tokenizer import NEVER_WRITTEN, PAD_ID
from transformer.inference.translator import Translator
from transformer.model.config import ATTENTION_SINKS, ModelConfig
from transformer.model.positions.additive import sinusoid_angles
from transformer.model.positions.registry import split_names

OPSET, IR_VERSION = 20, 9  # ONNX 1.15 (2023), the first with Gelu
POSITIONS = ("sinusoidal", "split", "learned", "rotary", "none")
EXPRESSIBLE = layers.EXPRESSIBLE | {"attention_sink": ATTENTION_SINKS, "head_gate": (False, True)}
USAGE = reader.usage_of("onnx")


def write(predictor: Translator, params: Any, folder: Path) -> None:
    """Writes both graphs, and the other files needed for inference, to a folder."""
    config = predictor.model.config
    for name, graph in make_graphs(config, params).items():
        (folder / f"{name}.onnx").write_bytes(graph.SerializeToString())
    shape = [config.num_decoder_layers, 2, 1, config.num_heads, 0, config.head_width]
    reader.write_files(predictor, folder, empty_past=shape)


def make_graphs(config: ModelConfig, params: Any) -> dict[str, Any]:
    """Returns the graphs `encoder` and `decoder` as a `ModelProto` each; they compute in float32.

    Token ids are int32. Keys and values have the shape [layers, 2, B, H, positions, K]: `past` has
    the keys and values of earlier tokens, and the second result has those of all tokens. Raises
    UserError if the package `onnx` is missing, or if the model is not supported.
    """
    package = reader.needed_package("onnx")
    layers.check_expressible("the format onnx", config, EXPRESSIBLE, POSITIONS)
    depth, heads, width = config.num_decoder_layers, config.num_heads, config.head_width
    shapes = {name: [depth, 2, "B", heads, name, width] for name in ("memory", "past", "present")}
    shapes |= {"source": ["B", "M"], "tokens": ["B", "L"]}
    shapes["logits"] = ["B", "L", config.target_vocab_size]
    encoder, decoder = (_Graph(package, config, params) for _ in HALVES)
    memory, (logits, present) = encoder.encode(), decoder.decode()
    inputs = ("tokens", "past", "memory", "source")
    return {
        "encoder": encoder.finish(shapes, ("source",), memory=memory),
        "decoder": decoder.finish(shapes, inputs, logits=logits, present=present),
    }


class _Graph:
    """Builds a graph: a list of nodes in execution order, and the constants that they use.

    Calling the builder with an operator and its inputs adds a node, and returns the name of the
    node's output. Each input is such a name, or a number or array, which is stored as a constant.
    """

    def __init__(self, package: Any, config: ModelConfig, params: Any):
        self.onnx, self.config, self.params = package, config, params
        self.arrays = layer_arrays(config, params)
        self.nodes: list[Any] = []
        self.constants: dict[tuple, Any] = {}

    def __call__(self, operator: str, *inputs: Any, **attributes: Any) -> str:
        names = [x if isinstance(x, str) else self._constant(np.asarray(x)) for x in inputs]
        result = f"{operator}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, names, [result], **attributes))
        return result

    def _constant(self, array: np.ndarray) -> str:
        array = array.astype(np.float32) if array.dtype == np.float64 else array
        key = array.shape, array.dtype.str, array.tobytes()  # stores tied arrays once
        if key not in self.constants:
            name = f"constant_{len(self.constants)}"
            self.constants[key] = self.onnx.numpy_helper.from_array(array, name)
        return self.constants[key].name

    def finish(self, shapes: Mapping[str, Any], inputs: Sequence[str], **results: str) -> Any:
        """Returns the complete model, given the names of its inputs, and a node for each output."""
        helper, types = self.onnx.helper, self.onnx.TensorProto
        for name, node in results.items():
            self.nodes.append(helper.make_node("Identity", [node], [name]))
        values = {
            name: helper.make_tensor_value_info(
                name, types.INT32 if name in ("source", "tokens") else types.FLOAT, shape
            )
            for name, shape in shapes.items()
        }
        ends = ([values[name] for name in names] for names in (inputs, results))
        constants = [*self.constants.values()]
        graph = helper.make_graph(self.nodes, "transformer", *ends, constants)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        self.onnx.checker.check_model(model)
        return model

    # -- encoder and decoder

    def encode(self) -> str:
        """Returns the cross-attention keys and values of the decoder, computed from `source`."""
        config, positions = self.config, self("Range", 0, self._size("source", 1), 1)
        x, angles = self._embed("source", "source", "encoder", positions)
        mask = self._is_token("source")
        for i in range(config.num_encoder_layers):
            place = f"encoder_layers_{i}/self_attention"
            y = self._before(x, place)
            attended = self._attend(y, self._keys_values(y, place, angles), mask, place, angles)
            x = self._feed_forward(self._after(x, attended, place), f"encoder_layers_{i}")
        x = self._norm(x, "encoder_norm") if config.normalizes_input else x
        places = [f"decoder_layers_{i}/cross_attention" for i in range(config.num_decoder_layers)]
        return self._stack([self._keys_values(x, place) for place in places])

    def decode(self) -> tuple[str, str]:
        """Returns logits, and the keys and values of all tokens, computed from the graph inputs."""
        config, before = self.config, self._size("past", 4)
        keys = self("Range", 0, self("Add", before, self._size("tokens", 1)), 1)
        positions = self("Slice", keys, self("Unsqueeze", before, [0]), [config.max_length])
        x, angles = self._embed("tokens", "target", "decoder", positions)
        mask = self("LessOrEqual", keys, self("Unsqueeze", positions, [1]))
        source_mask, present = self._is_token("source"), []
        for i in range(config.num_decoder_layers):
            place = f"decoder_layers_{i}/self_attention"
            y = self._before(x, place)
            pairs = zip(self._layer("past", i), self._keys_values(y, place, angles), strict=True)
            present.append([self("Concat", *pair, axis=2) for pair in pairs])
            x = self._after(x, self._attend(y, present[-1], mask, place, angles), place)
            place = f"decoder_layers_{i}/cross_attention"
            y, memory = self._before(x, place), self._layer("memory", i)
            x = self._after(x, self._attend(y, memory, source_mask, place), place)
            x = self._feed_forward(x, f"decoder_layers_{i}")
        x = self._norm(x, "decoder_norm") if config.normalizes_input else x
        table = self("Transpose", layers.table_of(self.arrays, "output"))
        bias = np.array(self.arrays.get("output_bias", np.zeros(config.target_vocab_size)))
        bias[[*NEVER_WRITTEN]] = -np.inf
        return self("Add", self("MatMul", x, table), bias), self._stack(present)

    # -- layers

    def _embed(self, tokens: str, side: str, half: str, positions: str) -> tuple[str, Any]:
        """Returns embeddings, and the sines and cosines for rotary positions or else None."""
        length, names = self.config.max_length, getattr(self.config, f"{half}_names")
        vectors = self("Gather", layers.table_of(self.arrays, side), tokens)
        x = self("Mul", vectors, math.sqrt(self.config.d_model))
        table = position_table(self.config, self.params, half, length)
        if table.any():
            x = self("Add", x, self("Gather", table, positions))
        if "rotary" not in split_names(names):
            return x, None
        angles = np.asarray(sinusoid_angles(jnp.arange(length), self.config.head_width))
        pairs = angles.repeat(2, axis=1)
        return x, [self("Gather", f(pairs), positions) for f in (np.sin, np.cos)]

    def _linear(self, x: str, place: str) -> str:
        y, bias = self("MatMul", x, self.arrays[f"{place}/kernel"]), f"{place}/bias"
        return self("Add", y, self.arrays[bias]) if bias in self.arrays else y

    def _norm(self, x: str, place: str) -> str:
        epsilon, scale = self.config.norm_epsilon, self.arrays[f"{place}/scale"]
        if self.config.norm == "layer":
            bias = self.arrays[f"{place}/bias"]
            return self("LayerNormalization", x, scale, bias, epsilon=epsilon)
        mean = self("ReduceMean", self("Mul", x, x), [-1])
        return self("Mul", self("Div", x, self("Sqrt", self("Add", mean, epsilon))), scale)

    def _before(self, x: str, place: str) -> str:
        """Returns the input of a sub-layer: the residual stream, normalised unless post-norm."""
        names = {"pre": "norm", "both": "norm_in"}
        name = names.get(self.config.norm_position)
        return self._norm(x, f"{place}_residual/{name}") if name else x

    def _after(self, x: str, y: str, place: str) -> str:
        """Adds the output y of a sub-layer to the residual stream x, with the normalisation."""
        if self.config.norm_position == "both":
            y = self._norm(y, f"{place}_residual/norm_out")
        x = self("Add", x, y)
        post = self.config.norm_position == "post"
        return self._norm(x, f"{place}_residual/norm") if post else x

    def _feed_forward(self, x: str, layer: str) -> str:
        name, place = self.config.activation, f"{layer}/feed_forward"
        y = self._before(x, place)
        inner = self._activate(self._linear(y, f"{place}/inner"), GATED.get(name, name))
        if name in GATED:
            inner = self("Mul", inner, self._linear(y, f"{place}/gate"))
        return self._after(x, self._linear(inner, f"{place}/outer"), place)

    def _activate(self, x: str, name: str) -> str:
        if name == "silu":
            return self("Mul", x, self("Sigmoid", x))
        return self("Relu", x) if name == "relu" else self("Gelu", x, approximate="tanh")

    # -- attention; heads are [B, H, positions, K]

    def _heads(self, x: str, place: str, angles: Any = None) -> str:
        width = self.config.head_width
        heads = self("Reshape", self._linear(x, place), [0, 0, self.config.num_heads, width])
        heads = self("Transpose", heads, perm=[0, 2, 1, 3])
        if angles is None:
            return heads
        sine, cosine = angles
        turn = np.kron(np.eye(width // 2), [[0, 1], [-1, 0]])  # (x, y) -> (-y, x)
        turned = self("Mul", self("MatMul", heads, turn), sine)
        return self("Add", self("Mul", heads, cosine), turned)

    def _keys_values(self, x: str, place: str, angles: Any = None) -> list[str]:
        return [self._heads(x, f"{place}/key", angles), self._heads(x, f"{place}/value")]

    def _attend(
        self, x: str, keys_values: Sequence[str], mask: str, place: str, angles: Any = None
    ) -> str:
        keys, values = keys_values
        queries = self._heads(x, f"{place}/query", angles)
        queries = self("Mul", queries, self.config.head_width**-0.5)
        scores = self("MatMul", queries, self("Transpose", keys, perm=[0, 1, 3, 2]))
        scores = self("Where", mask, scores, np.finfo(np.float32).min)
        weights = self("Softmax", scores)
        if self.config.attention_sink != "none":
            sink = self.arrays.get(f"{place}/sink", np.zeros(self.config.num_heads))
            logit = self("Sub", self("ReduceLogSumExp", scores, [-1]), sink[:, None, None])
            weights = self("Mul", weights, self("Sigmoid", logit))
        heads = self("Transpose", self("MatMul", weights, values), perm=[0, 2, 1, 3])
        if self.config.head_gate:
            gates = self("Sigmoid", self._linear(x, f"{place}/head_gate"))
            heads = self("Mul", heads, self("Unsqueeze", gates, [3]))
        return self._linear(self("Reshape", heads, [0, 0, -1]), f"{place}/output")

    # -- shapes

    def _size(self, x: str, axis: int) -> str:
        return self("Squeeze", self("Shape", x, start=axis, end=axis + 1))

    def _is_token(self, x: str) -> str:
        """Returns the padding mask, [B, 1, 1, positions]."""
        return self("Unsqueeze", self("Not", self("Equal", x, np.int32(PAD_ID))), [1, 2])

    def _stack(self, parts: Sequence[Any]) -> str:
        """Stacks the keys and values of all layers in one array."""
        parts = [part if isinstance(part, str) else self._stack(part) for part in parts]
        return self("Concat", *(self("Unsqueeze", part, [0]) for part in parts), axis=0)

    def _layer(self, x: str, layer: int) -> list[str]:
        """Returns the keys and values of a layer, taken from a stacked array."""
        return [self("Gather", self("Gather", x, layer), i) for i in range(2)]
