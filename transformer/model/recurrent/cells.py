"""Recurrent cells, and the application of a cell to a sequence.

A cell maps a projected input and a state to the next state, a tuple of float32 vectors, the first
of which is the output. The products of the inputs with their kernel do not depend on the state:
`Cell.project` computes them for a whole sequence at once, so each step only multiplies the state.
"""

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from transformer.model.config import Dtypes, Size
from transformer.model.matmul import linear
from transformer.variants import Registry

State = tuple[Float[Array, "*batch width"], ...]
POLAR_STEPS = 48  # Newton-Schulz steps: enough for singular values of 1e-6 times the largest


def orthogonal(key: Array, shape: tuple[int, int]) -> Float[Array, "width width"]:
    """Returns a random orthogonal matrix: the polar factor of a normal matrix.

    It is computed by the Newton-Schulz iteration, which uses only products. The usual QR
    decomposition is avoided, because two of them in one program deadlocked in XLA's CPU backend.

    Source: Higham 2008, "Functions of Matrices", equation 8.20.
    """
    start = jax.random.normal(key, shape)
    start /= jnp.linalg.norm(start)

    def step(_, x):
        product = functools.partial(jnp.matmul, precision="highest")
        return 1.5 * x - 0.5 * product(product(x, x.T), x)

    return jax.lax.fori_loop(0, POLAR_STEPS, step, start)


class Cell(nn.Module):
    """The base of all cells: a kernel for inputs and one for the state, with a block for each gate.

    Input kernels are initialised Glorot-uniform and recurrent ones orthogonal, separately for each
    gate; biases start at zero, except that the forget gate's start at one, so that a state is kept
    until a cell learns to forget. Some of the papers omit biases; here all cells have them.

    Args:
      inputs: width of the inputs.
      width: width of the output, and of each vector of the state.
      dtypes: dtypes of projected inputs and of products; gates and states are float32.
      context: width of a second input that is computed at each step, see `project_context`; 0 for
        none.

    Source: Glorot and Bengio 2010, equation 16; Saxe et al. 2014, "Exact solutions to the nonlinear
    dynamics of learning in deep linear neural networks", and Bahdanau et al. 2015, appendix B.1
    (orthogonal); Jozefowicz et al. 2015, "An Empirical Exploration of Recurrent Network
    Architectures" (the forget gate's bias).
    """

    gates: ClassVar[tuple[str, ...]]  # the kernels' blocks of columns, in order
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
        self.bias = self.param("bias", self._first_bias, (columns,))
        if self.context:
            self.context_kernel = self.param("context_kernel", glorot, (self.context, columns))

    def project(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch columns"]:
        """Returns the contribution of the inputs to all gates, with the biases."""
        y = self._product(x, self.input_kernel) + self.bias
        return y.astype(self.dtypes.activations)

    def project_context(self, context: Float[Array, "*batch D"]) -> Float[Array, "*batch columns"]:
        """Returns the contribution of the second input, to be added to a step's projected input."""
        return self._product(context, self.context_kernel)

    def zeros(self, *batch: Size) -> State:
        """Returns the initial state, zeros."""
        return (jnp.zeros((*batch, self.width)),) * self.states

    def _product(self, x, kernel) -> Float[Array, "*batch columns"]:
        """Returns the product, summed in float32 and flat as in `layers.Linear`."""
        y = linear(x.reshape(-1, x.shape[-1]), kernel, self.dtypes.factors, "float32")
        return y.reshape(*x.shape[:-1], -1)

    def _sums(self, projected, output) -> list[Float[Array, "*batch width"]]:
        """Returns each gate's sum before its activation."""
        sums = projected + self._product(output, self.recurrent_kernel)
        return jnp.split(sums, len(self.gates), axis=-1)

    def _gate_by_gate(self, initializer: Callable) -> Callable:
        def draw(key: Array, shape: tuple[int, int]) -> Float[Array, "rows columns"]:
            keys = jax.random.split(key, len(self.gates))
            blocks = jax.vmap(lambda key: initializer(key, (shape[0], self.width)))(keys)
            return jnp.concatenate(blocks, axis=1)

        return draw

    def _first_bias(self, key: Array, shape: tuple[int]) -> Float[Array, "columns"]:
        return jnp.repeat(jnp.array([float(gate == "forget") for gate in self.gates]), self.width)


class LSTM(Cell):
    """Long short-term memory with block input z and input, forget and output gates i, f and o.

        c' = tanh(z) * sigmoid(i) + c * sigmoid(f)        y' = tanh(c') * sigmoid(o)

    where z, i, f, o are W x + R y + b with their own parameters. The state is (y, c).

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
    """The LSTM whose gates also see the memory: input and forget gate the old, output gate the new.

    The peepholes, a weight for each gate and unit, start at zero, as in an LSTM without them.

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
    """The gated recurrent unit, which resets the state before its product with the kernel.

        h' = z * h + (1 - z) * tanh(W x + U (r * h) + b)

    Many implementations reset after the product, r * (U h): another function, with one product per
    step instead of two. The update gate z keeps the old state, as in the source; Bahdanau et al.
    2015, appendix A.1.1, call 1 - z the update gate.

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
    """Returns the output after each step, and the other return values of the steps.

    Time is the first axis, as `scan` needs it.

    Args:
      module: the owner of the parameters that `step` uses.
      step: (module, projected input, state) -> (state, other output).
      state: initial state.
      mask: where it is False, the step keeps the state unchanged.
      starts: where it is True, the state is zero before the step.
      reverse: from the last step to the first.
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

    # No unrolling: four steps per iteration take longer to compile and were not faster on a CPU.
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
      state: initial state; None for zeros.
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
    """Two cells, one for each direction, with concatenated outputs.

    Padding does not change their states. So the left-to-right half of the last position and the
    right-to-left half of the first are the two final states, with or without padding.

    Args:
      cell: a key of REGISTRY.
      features: width of inputs and outputs; even, half for each direction.

    Source: Schuster and Paliwal 1997, "Bidirectional Recurrent Neural Networks".
    """

    cell: str
    features: int
    dtypes: Dtypes

    def setup(self):
        make = REGISTRY[self.cell]
        self.forward = make(self.features, self.features // 2, self.dtypes)
        self.backward = make(self.features, self.features // 2, self.dtypes)

    def __call__(self, x: Float[Array, "B L D"], mask: Bool[Array, "B L"]) -> Float[Array, "B L D"]:
        halves = run_cell(self.forward, x, mask), run_cell(self.backward, x, mask, reverse=True)
        return jnp.concatenate(halves, axis=-1)
