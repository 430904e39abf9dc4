"""Each recurrent cell equals its paper's equations, and padding leaves its state as it is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import reference_recurrent as reference
from reference import float64
from transformer.model.config import FLOAT32
from transformer.model.recurrent.cells import REGISTRY, run_cell

INPUTS, WIDTH, STEPS = 5, 2, 3


def a_cell(name):
    """A cell, random parameters, inputs of a sentence and a state to start from."""
    rng = np.random.default_rng(1)
    cell = REGISTRY[name](INPUTS, WIDTH, FLOAT32)
    params = reference.parameters(reference.cell_shapes(name, INPUTS, WIDTH))
    x = rng.normal(size=(STEPS, INPUTS)).astype(np.float32)
    state = tuple(rng.normal(size=(cell.states, WIDTH)).astype(np.float32))
    return cell, params, x, state


@pytest.mark.parametrize("name", REGISTRY)
def test_a_cell_equals_its_papers_equations_step_by_step(name):
    cell, params, x, state = a_cell(name)
    gates, expected = reference.by_gate(float64(params), name), state
    variables, state = {"params": params}, tuple(jnp.asarray(vector) for vector in state)
    for row in x:
        projected = cell.apply(variables, jnp.asarray(row), method="project")
        state = cell.apply(variables, projected, state)
        expected = reference.CELLS[name](gates, row, expected)
        np.testing.assert_allclose(state, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", REGISTRY)
def test_cells_start_orthogonal_and_keeping_what_they_have(name):
    cell = REGISTRY[name](5, 3, FLOAT32, context=7)
    x, state = jnp.zeros(5), tuple(jnp.zeros((cell.states, 3)))
    init = jax.jit(
        lambda key: cell.init(key, cell.init_with_output(key, x, method="project")[0], state)
    )
    params = init(jax.random.key(0))["params"]
    assert jax.tree.map(jnp.shape, params) == reference.cell_shapes(name, 5, 3, 7)
    gates = reference.GATES[name]
    for kernel in np.split(params["recurrent_kernel"], gates, axis=1):
        np.testing.assert_allclose(kernel @ kernel.T, np.eye(3), atol=1e-5)
    for kernel, inputs in (("input_kernel", 5), ("context_kernel", 7)):
        bound = np.sqrt(6 / (inputs + 3))  # of each gate by itself
        assert 0.8 * bound < np.abs(params[kernel]).max() < bound
    forget = {"lstm": [0, 0, 1, 0], "lstm_peephole": [0, 0, 1, 0]}.get(name, [0] * gates)
    np.testing.assert_array_equal(params["bias"], np.repeat(forget, 3))


@pytest.mark.parametrize("reverse", [False, True])
def test_padding_leaves_the_state_as_it_is(reverse):
    cell, params, *_ = a_cell("lstm")
    x = jnp.asarray(np.random.default_rng(3).normal(size=(7, INPUTS)), jnp.float32)
    mask = np.array([False, True, False, True, True, False, True])

    @jax.jit
    def run(x, mask):
        def outputs(x):
            arguments = {"reverse": reverse, "method": run_cell}
            found = cell.apply({"params": params}, x[None], mask[None], **arguments)[0]
            return found.sum(), found

        gradient, found = jax.grad(outputs, has_aux=True)(x)
        return found, jnp.abs(gradient).sum(1) > 0

    found, read = run(x, mask)
    order = slice(None, None, -1 if reverse else 1)
    real = reference.run(float64(params), "lstm", np.asarray(x)[mask][order])[order]
    np.testing.assert_allclose(found[mask], real, rtol=1e-5, atol=1e-6)
    # A hole has the output of the step before it; before the first step it is zero.
    last = np.zeros(WIDTH)
    for i in np.arange(7)[order]:
        last = found[i] if mask[i] else last
        np.testing.assert_array_equal(found[i], last)
    np.testing.assert_array_equal(read, mask)
    # The control: what is no longer padding is read.
    assert run(x, np.ones(7, bool))[1].all()
