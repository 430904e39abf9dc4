"""Draws the modules of the base model as a tree of their names and classes.

    python -m tools.class_tree

Modules are in the order in which a forward pass first calls them; modules of one parent with the
same class and content share a branch. `docs/articles.md` contains the output.
"""

import jax
import jax.numpy as jnp

from transformer.config import default_config
from transformer.model.build import build_model
from transformer.model.config import ModelConfig
from transformer.tasks.base import model_fields


def class_tree() -> str:
    """Returns the tree, one module or group of modules per line."""
    fields = model_fields(default_config().model)
    config = ModelConfig(source_vocab_size=8, target_vocab_size=8, **fields)
    tokens = jnp.ones((1, 1), jnp.int32)
    inputs = tokens, tokens, tokens > 0, tokens > 0
    modules = build_model(config).module_paths(jax.random.key(0), *inputs)  # "a/b" -> module

    def branches(parent: str) -> list[str]:
        groups: dict[tuple[str, ...], list[str]] = {}
        for path, module in modules.items():
            above, _, name = path.rpartition("/")
            if path and above == parent:  # of a stack, only the first layer has a path
                stack = name.removesuffix("_0")
                name = f"{getattr(config, f'num_{stack}', '')} {stack}".strip()
                groups.setdefault((type(module).__name__, *branches(path)), []).append(name)
        lines = []
        for number, ((kind, *below), names) in enumerate(groups.items(), 1):
            corner, side = ("└── ", "    ") if number == len(groups) else ("├── ", "│   ")
            lines += [f"{corner}{', '.join(names)}: {kind}", *(side + line for line in below)]
        return lines

    return "\n".join([type(modules[""]).__name__, *branches(""), ""])


if __name__ == "__main__":
    print(class_tree(), end="")
