"""Recurrent cells, and functions that run a cell over a sequence.

A cell maps a projected input and a state to the next state, a tuple of float32 vectors; the first
vector is the output. The input projections do not depend on the state: `Cell.project` computes them
for the whole sequence at once, so a step multiplies only the state by a kernel.
"""

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from transformer.model.config import Dtypes, ModelConfig, Size
from transformer.model.matmul import linear
from transformer.variants import Registry

State = tuple[Float[Array, "*batch width"], ...]
POLAR_STEPS = 48  # Newton-Schulz steps, enough for singular values of 1e-6 times the largest


def orthogonal(key: Array, shape: tuple[int, int]) -> Float[Array, "width width"]:
    """Returns a random orthogonal matrix: the polar factor of a Gaussian matrix.

    It is computed by Newton-Schulz iteration, which uses only matrix products. The usual QR
    decomposition is avoided, because two of them in one program deadlocked on XLA's CPU backend.

    Source: Higham 2008, "Functions of Matrices", equation 8.20.
    """
    start = jax.random.normal(key, shape)
    start /= jnp.linalg.norm(start)

    def step(_, x):
        product = functools.partial(jnp.matmul, precision="highest")
        return 1.5 * x - 0.5 * product(product(x, x.T), x)

    return jax.lax.fori_loop(0, POLAR_STEPS, step, start)


class Cell(nn.Module):
    """Base class of recurrent cells, whose input and recurrent kernels have one block per gate.

    Input kernels are initialised as Glorot uniform and recurrent kernels as orthogonal, separately
    for each gate. Biases start at zero, but the forget gate's bias starts at one, so that a cell
    keeps its state until it learns to forget. Some papers omit biases; here all cells have them.

    Args:
      inputs: dimension of the inputs.
      width: dimension of the output, and of each vector of the state.
      dtypes: dtypes of projected inputs and matrix products; gates and states are float32.
      context: dimension of a second input at each step (see `project_context`), or 0 for none.

    Source: Glorot and Bengio 2010, equation 16; Saxe et al. 2014, "Exact solutions to the nonlinear
    dynamics of learning in deep linear neural networks", and Bahdanau et al. 2015, appendix B.1
    (orthogonal); Jozefowicz et al. 2015, "An Empirical Exploration of Recurrent Network
    Architectures" (the forget gate's bias).
    """

    gates: ClassVar[tuple[str, ...]]  # the column blocks of the kernels, in order
    states: ClassVar[int] = 1  # number of vectors in the state

    inputs: int
    width: int
    dtypes: Dtypes
    context: int = 0

    def setup(self):
        columns = len(self.gates) * self.width
        glorot = self._gate_by_gate(nn.initializers.xavier_uniform())
        self.input_kernel = self.param("input_kernel", glorot, (self.inputs, columns))
        self.recurrent_kernel = self.param(
            "recurrent_kernel", self._gate_by_gate(orthogonal), (self.width, columns)
        )
        first = jnp.array([float(gate == "forget") for gate in self.gates])
        self.bias = self.param("bias", lambda _: jnp.repeat(first, self.width))
        if self.context:
            self.context_kernel = self.param("context_kernel", glorot, (self.context, columns))

    def project(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch columns"]:
        """Returns the projection of the inputs for all gates, including the biases."""
        y = self._product(x, self.input_kernel) + self.bias
        return y.astype(self.dtypes.activations)

    def project_context(self, context: Float[Array, "*batch D"]) -> Float[Array, "*batch columns"]:
        """Returns the projection of the second input, to be added to a step's projected input."""
        return self._product(context, self.context_kernel)

    def zeros(self, *batch: Size) -> State:
        """Returns the initial state, which is all zeros."""
        return (jnp.zeros((*batch, self.width)),) * self.states

    def _product(self, x, kernel) -> Float[Array, "*batch columns"]:
        """Returns x @ kernel with float32 sums, over flattened tokens as in `layers.Linear`."""
        y = linear(x.reshape(-1, x.shape[-1]), kernel, self.dtypes.factors, "float32")
        return y.reshape(*x.shape[:-1], -1)

    def _sums(self, projected, output) -> list[Float[Array, "*batch width"]]:
        """Returns the pre-activations of all gates, one array per gate."""
        sums = projected + self._product(output, self.recurrent_kernel)
        return jnp.split(sums, len(self.gates), axis=-1)

    def _gate_by_gate(self, initializer: Callable) -> Callable:
        def draw(key: Array, shape: tuple[int, int]) -> Float[Array, "rows columns"]:
            keys = jax.random.split(key, len(self.gates))
            blocks = jax.vmap(lambda key: initializer(key, (shape[0], self.width)))(keys)
            return jnp.concatenate(blocks, axis=1)

        return draw


class LSTM(Cell):
    """Long short-term memory with block input z and input, forget and output gates i, f and o.

        c' = tanh(z) * sigmoid(i) + c * sigmoid(f)        y' = tanh(c') * sigmoid(o)

    where z, i, f and o are W x + R y + b with separate parameters. The state is (y, c).

    Source: Hochreiter and Schmidhuber 1997; Gers et al. 2000 (forget gate); the equations of Greff
    et al. 2017, "LSTM: A Search Space Odyssey", section II, without their peepholes.
    """

    gates = ("block_input", "input", "forget", "output")
    states = 2

    def __call__(self, projected: Float[Array, "*batch columns"], state: State) -> State:
        output, memory = state
        z, i, f, o = self._sums(projected, output)
        memory = jnp.tanh(z) * jax.nn.sigmoid(i) + memory * jax.nn.sigmoid(f)
        return jnp.tanh(memory) * jax.nn.sigmoid(o), memory


class PeepholeLSTM(LSTM):
    """An LSTM with peepholes: gates also read the memory; the output gate reads the new memory.

    The peephole weights, one per gate and unit, start at zero, so the cell starts as a plain LSTM.

    Source: Gers and Schmidhuber 2000, "Recurrent Nets that Time and Count"; Greff et al. 2017,
    section II.
    """

    def setup(self):
        super().setup()
        self.peepholes = self.param("peepholes", nn.initializers.zeros_init(), (3, self.width))

    def __call__(self, projected: Float[Array, "*batch columns"], state: State) -> State:
        output, memory = state
        z, i, f, o = self._sums(projected, output)
        to_input, to_forget, to_output = self.peepholes
        i = jax.nn.sigmoid(i + to_input * memory)
        f = jax.nn.sigmoid(f + to_forget * memory)
        memory = jnp.tanh(z) * i + memory * f
        return jnp.tanh(memory) * jax.nn.sigmoid(o + to_output * memory), memory


class GRU(Cell):
    """The gated recurrent unit; the reset gate is applied before the recurrent kernel.

        h' = z * h + (1 - z) * tanh(W x + U (r * h) + b)

    Many implementations apply the reset gate after the product, r * (U h), which is a different
    function with one product per step instead of two. The update gate z weights the old state, as
    in the paper; Bahdanau et al. 2015, appendix A.1.1, call 1 - z the update gate.

    Source: Cho et al. 2014, "Learning Phrase Representations using RNN Encoder-Decoder for
    Statistical Machine Translation", equations 5 to 8.
    """

    gates = ("reset", "update", "candidate")

    def __call__(self, projected: Float[Array, "*batch columns"], state: State) -> State:
        (output,) = state
        of_gates, of_candidate = jnp.split(projected, [2 * self.width], axis=-1)
        gate_kernel, candidate_kernel = jnp.split(self.recurrent_kernel, [2 * self.width], axis=1)
        sums = jax.nn.sigmoid(of_gates + self._product(output, gate_kernel))
        reset, update = jnp.split(sums, 2, axis=-1)
        candidate = jnp.tanh(of_candidate + self._product(reset * output, candidate_kernel))
        return (update * output + (1.0 - update) * candidate,)


class RNN(Cell):
    """The simple recurrent network: h' = tanh(W x + U h + b).

    Source: Elman 1990, "Finding Structure in Time", with tanh in place of the logistic function.
    """

    gates = ("output",)

    def __call__(self, projected: Float[Array, "*batch columns"], state: State) -> State:
        (output,) = state
        [total] = self._sums(projected, output)
        return (jnp.tanh(total),)


REGISTRY: dict[str, type[Cell]] = Registry(
    lstm=LSTM,
    lstm_peephole=PeepholeLSTM,
    gru=GRU,
    rnn=RNN,
)


def recur(
    module: nn.Module,
    step: Callable,
    state: State,
    projected: Float[Array, "L *batch columns"],
    mask: Bool[Array, "L *batch"],
    starts: Bool[Array, "L *batch"] | None = None,
    reverse: bool = False,
) -> tuple[Float[Array, "L *batch width"], Any]:
    """Returns the output after each step, and the additional outputs of all steps.

    Time is the first axis, as `scan` requires.

    Args:
      module: the module that owns the parameters of `step`.
      step: (module, projected input, state) -> (state, additional output).
      state: initial state.
      mask: False at steps that leave the state unchanged.
      starts: True at steps before which the state is reset to zero.
      reverse: whether to run from the last step to the first.
    """

    def body(module, state, inputs):
        projected, real, start = inputs
        if start is not None:
            state = tuple(jnp.where(start[..., None], 0.0, old) for old in state)
        after, other = step(module, projected, state)
        state = tuple(
            jnp.where(real[..., None], new, old) for new, old in zip(after, state, strict=True)
        )
        return state, (state[0], other)

    # Not unrolled: four steps per iteration took longer to compile and were not faster on a CPU.
    scan = nn.scan(body, variable_broadcast="params", split_rngs={"params": False}, reverse=reverse)
    _, (outputs, others) = scan(module, state, (projected, mask, starts))
    return outputs, others


def run_cell(
    cell: Cell,
    x: Float[Array, "B L inputs"],
    mask: Bool[Array, "B L"],
    state: State | None = None,
    starts: Bool[Array, "B L"] | None = None,
    reverse: bool = False,
) -> Float[Array, "B L width"]:
    """Returns a cell's output at each position; see `recur` for the arguments.

    Args:
      state: initial state, or None for zeros.
    """
    projected = cell.project(x.swapaxes(0, 1))
    outputs, _ = recur(
        cell,
        lambda cell, projected, state: (cell(projected, state), None),
        cell.zeros(x.shape[0]) if state is None else state,
        projected,
        mask.T,
        None if starts is None else starts.T,
        reverse,
    )
    return outputs.swapaxes(0, 1).astype(x.dtype)


class BidirectionalLayer(nn.Module):
    """Runs one cell in each direction, and concatenates the outputs of both cells.

    Padding does not change the states. Therefore the forward half of the last position and the
    backward half of the first position are the two final states, with or without padding.

    Args:
      config: `d_model` is the dimension of inputs and outputs; it must be even, since each
        direction outputs half.

    Source: Schuster and Paliwal 1997, "Bidirectional Recurrent Neural Networks".
    """

    config: ModelConfig

    def setup(self):
        config, make = self.config, REGISTRY[self.config.cell]
        self.forward = make(config.d_model, config.d_model // 2, config.dtypes)
        self.backward = make(config.d_model, config.d_model // 2, config.dtypes)

    def __call__(self, x: Float[Array, "B L D"], mask: Bool[Array, "B L"]) -> Float[Array, "B L D"]:
        halves = run_cell(self.forward, x, mask), run_cell(self.backward, x, mask, reverse=True)
        return jnp.concatenate(halves, axis=-1)
