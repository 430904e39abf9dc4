"""The shared run as a translator, for commands and for Python."""

import pytest

from tiny_run import command, loading_once
from transformer.runs import workdir
from transformer.runs.run import Run


@pytest.fixture(scope="module", autouse=True)
def once():
    with loading_once():
        yield


@pytest.fixture(scope="module")
def loaded(tiny):
    """A translator and its parameters."""
    config = workdir.load_config(tiny.workdir)
    run = Run(tiny.workdir, config).load_trained()
    translator, params = run.predictor, run.variables
    return translator, params


@pytest.fixture
def translate(tiny):
    def run(text, *arguments):
        text = text if isinstance(text, bytes) else text.encode()
        return command("--mode=translate", f"--workdir={tiny.workdir}", *arguments, stdin=text)

    return run
