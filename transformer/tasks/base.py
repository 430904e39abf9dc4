"""What the training loop needs to know of a task, and nothing more."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Array, Float

from transformer.data.tokenizer import Tokenizer
from transformer.losses import TokenSums

END_OF_SENTENCE = "</s>"
COMES_NEXT = "(next)"  # names what is written after the last token of a text that may go on


class Attention(NamedTuple):
    """What a model attends to while it reads one text, or a source and its translation.

    Kinds are "encoder_self" (both axes are the source), "decoder_self" (both are the target) and
    "cross" (queries are the target, keys the source), of those that the model has.

    Attributes:
      weights: of each layer and head, by kind; a query's row sums to one.
      value_norms: the norm of what a key adds to a layer's output where all of a head's weight is
        on it, by kind; none of a model that has no such heads, see `MultiHeadAttention`.
      source_tokens: those that the encoder reads; a translator's end in end-of-sentence.
      target_tokens: those that the decoder reads. A side that a model lacks has no tokens.
    """

    weights: Mapping[str, Float[np.ndarray, "layers H L M"]]
    value_norms: Mapping[str, Float[np.ndarray, "layers H M"]]
    source_tokens: list[str]
    target_tokens: list[str]

    @property
    def written_tokens(self) -> list[str]:
        """What the decoder writes in each row of its attention: the token after the one it reads.

        A translation ends in end-of-sentence; what a language model writes after its text is
        `COMES_NEXT`.
        """
        last = END_OF_SENTENCE if self.source_tokens else COMES_NEXT
        return [*self.target_tokens[1:], last][: len(self.target_tokens)]

    @classmethod
    def of_first_text(
        cls,
        model: Any,
        intermediates: Mapping[str, Any],
        source_tokens: list[str],
        target_tokens: list[str],
    ) -> "Attention":
        """Returns the attention over the first text of a batch, without its padding.

        Args:
          model: a kind of encoder and decoder, see `model.kinds`.
          intermediates: what it sowed while it read the batch.
        """
        source, target = len(source_tokens), len(target_tokens)
        sides = {
            "encoder_self": (source, source),
            "decoder_self": (target, target),
            "cross": (target, source),
        }
        weights = {
            kind: np.stack([w[0, :, : sides[kind][0], : sides[kind][1]] for w in layers])
            for kind, layers in jax.device_get(model.attention_weights(intermediates)).items()
        }
        value_norms = {
            kind: np.stack([norms[0, :, : sides[kind][1]] for norms in layers])
            for kind, layers in jax.device_get(model.value_norms(intermediates)).items()
        }
        return cls(weights, value_norms, source_tokens, target_tokens)


class TokenTable(NamedTuple):
    """A table of token embeddings: row i of `vectors` is of what `tokenizer` calls i."""

    vectors: Float[np.ndarray, "V D"]
    tokenizer: Tokenizer


@runtime_checkable
class Plan(Protocol):
    """All training batches there will ever be: batch i is a function of (seed, i) alone."""

    epoch_length: int  # batches

    def __getitem__(self, i: int) -> Any: ...

    def start_at(self, i: int, prefetch: int) -> Iterator[Any]:
        """Yields batch i and all after it, `prefetch` of them made ahead in the background."""
        ...


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


class Probe(NamedTuple):
    """What the attention heads of a model look at in fixed texts.

    Attributes:
      arrays: what to save of it, by names that `experiments/probes.py` lists; empty where there
        is nothing to probe.
      numbers: what to log of it: the mean of each statistic over the heads of a kind, and the
        smallest alignment error rate.
    """

    arrays: dict[str, np.ndarray]
    numbers: dict[str, float]


@runtime_checkable
class Task(Protocol):
    """Data, model and scores of one kind of experiment."""

    plan: Plan  # all training batches, by number
    d_model: int  # for the Noam schedule
    predictor: Predictor  # what is trained
    unit: str  # what losses are means over and speed counts
    splits: Sequence[str]  # what the final scores are of, "validation" first
    columns: Sequence[str]  # the scores that a table shows, those that there are

    @staticmethod
    def load(folder: Path, config: Any, warn: Callable[[str], None]) -> Predictor:
        """Returns the model of a run's folder; its checkpoints are read elsewhere.

        Raises:
          UserError: a file of it is missing or damaged, or the config describes no model.
        """
        ...

    @classmethod
    def from_folder(cls, folder: Path, config: Any, warn: Callable[[str], None]) -> "Task":
        """Returns the task of a run's folder, which scores its model but cannot train it.

        All it has are the tokenizers and the held-out text that the folder keeps: no source is
        opened, and there is neither `plan` nor `describe` nor `data_summary`.

        Raises:
          UserError: a file of it is missing or damaged, or the config describes no model.
        """
        ...

    def init_params(self, key: Array) -> Any:
        """Returns fresh float32 parameters."""
        ...

    def hparams(self) -> dict[str, float]:
        """Returns the task's numbers that one compiled step takes as arguments."""
        ...

    def loss(self, params: Any, batch: Any, hparams: dict, key: jax.Array) -> TokenSums:
        """Returns the training loss of a batch as sums over its tokens, dropout switched on."""
        ...

    def evaluate(self, params: Any, split: str, final: bool) -> dict[str, Any]:
        """Returns the scores of a split; `final` ones may take their time.

        Those have `texts` as well, {file in the run's folder: its lines}.
        """
        ...

    def probe(self, params: Any) -> Probe:
        """Returns what the heads look at in `evaluate.probe_statistics` validation texts."""
        ...

    def evaluate_members(self, params: Any, hparams: dict, split: str) -> list[dict[str, Any]]:
        """Returns what `evaluate` would, not final, for each member of a population.

        Args:
          params, hparams: of all members, stacked on a leading axis.
        """
        ...

    def held_out_batches(self, split: str) -> Iterator[Any]:
        """Yields all of a split once, in batches of few static shapes whose leaves begin alike.

        A leaf's first axis is that of the texts, or rows of text, which do not touch each other.
        """
        ...

    def held_out_sums(self, variables: Any, batch: Any) -> TokenSums:
        """Returns the unsmoothed loss of such a batch, without dropout, unweighted by class.

        Args:
          variables: what the model is applied with, see `Predictor`.
        """
        ...

    def with_config(self, config: Any, heads_vary: bool = False) -> "Task":
        """Returns the task of a config that differs in numbers alone; they share what compiles.

        Args:
          heads_vary: whether the number of heads is one of these, an argument of the step.
        """
        ...

    def save_assets(self, workdir: Path) -> None:
        """Writes what a later use of the run needs beside config and checkpoints."""
        ...

    def fingerprint(self) -> str:
        """Returns the predictor's."""
        ...

    def describe(self) -> list[str]:
        """Returns lines about data and model to print before training."""
        ...

    def data_summary(self) -> dict[str, Any]:
        """Returns what there is of text and what was made of it, as JSON has it.

        `splits` {name: {what is counted: number}}; `unknown_share` of the training tokens;
        `vocabulary` {side or "all": pieces}; `batches_per_epoch`; `shapes` [[rows, tokens], ...]
        of them; and, where the task has such, `cleaning` {"read", "kept", "dropped": {reason:
        number}}, `padding_share`, `broken_lines` {file: number}, and `preview`, a few training
        texts as tokens, {side: tokens} each.
        """
        ...
