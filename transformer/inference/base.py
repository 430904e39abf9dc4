"""What every model in use can be asked for."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from transformer.data.tokenizer import Tokenizer


class TokenTable(NamedTuple):
    """A table of token embeddings: row i of `vectors` is of what `tokenizer` calls i."""

    vectors: Float[np.ndarray, "V D"]
    tokenizer: Tokenizer


@runtime_checkable
class Predictor(Protocol):
    """A model in use, with given variables: text in, text or scores out."""

    model: Any  # the network, with its `config`

    def param_shapes(self) -> Any:
        """Returns the parameters' shapes and dtypes, without their values."""
        ...

    def fingerprint(self) -> str:
        """Returns what a checkpoint must agree with: the tokenizers' digests."""
        ...

    def token_tables(self, variables: Any) -> dict[str, TokenTable]:
        """Returns the tables of token embeddings by what they are for, joined by `_`.

        Tied ones are one table: "source_target_output" of a translator that ties all three.
        """
        ...
