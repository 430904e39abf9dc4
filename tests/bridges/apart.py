"""Translating in a process without this project, and what we would translate there."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from transformer.data.tokenizer import NEVER_WRITTEN
from transformer.errors import UserError

LENGTHS, STEPS = (3, 8, 5, 1, 6), 9  # of the sources; tokens that are translated


def run_apart(program, *arguments, cwd):
    """What a program prints in a process that has neither this project nor its place."""
    command = [sys.executable, "-I", "-c", program, *map(str, arguments)]
    return subprocess.run(command, check=True, cwd=cwd, capture_output=True, text=True).stdout


def site(package):
    """The folder in which a package is installed."""
    return Path(importlib.import_module(package).__file__).parents[1]


def card_prints(folder, texts, *sites):
    """The lines that the program of a model card prints for some texts."""
    [program] = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    for name, value in {
        'folder = "."': f"folder = {str(folder)!r}",
        '["A sentence.", "Another one."]': texts,
    }.items():
        assert name in program
        program = program.replace(name, str(value))
    start = f"import sys\nsys.path[:0] = {[*map(str, sites)]}\n"
    return run_apart(start + program, cwd=folder.parent).splitlines()


def batch_of(vocab_size, lengths=LENGTHS):
    random = np.random.default_rng(0)
    source = random.integers(4, vocab_size, (len(lengths), max(lengths)), np.int32)
    return np.where(np.arange(max(lengths)) < np.array(lengths)[:, None], source, 0)


def our_logits(model, variables, source, tokens):
    """Logits after each token, given those before, of a target read as a whole."""
    source, tokens = jnp.array(source), jnp.array(tokens)
    logits = model.apply(variables, source, tokens, source != 0, tokens >= 0)
    return np.asarray(logits.at[..., jnp.array(NEVER_WRITTEN)].set(-jnp.inf))


def refusal(check, *arguments) -> str:
    """The line by which an export refuses a model, or '' if it accepts it."""
    try:
        check(*arguments)
    except UserError as error:
        return str(error)
    return ""
