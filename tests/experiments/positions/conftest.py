"""A trained run, and figures that are built and not drawn."""

import dataclasses

import pytest
from matplotlib.figure import Figure

from transformer.runs.run import Run


@pytest.fixture
def undrawn(monkeypatch):
    """Figures are built, but their files are empty: drawing takes most of the time."""
    monkeypatch.setattr(Figure, "savefig", lambda figure, file, **_: file.write(b""))


@pytest.fixture(scope="module")
def trained(tiny):
    """Makes a trained run of parameters and the steps that they are the mean of."""
    run = Run(tiny.workdir).load_trained()
    return lambda params, *steps: dataclasses.replace(
        run, variables={"params": params}, steps=steps
    )
