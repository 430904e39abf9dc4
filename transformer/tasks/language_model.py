"""Language models: running text or documents, a decoder alone and how well it foresees them."""

import copy
import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from transformer.analysis.head_probe import READABLE, HeadProbe, Probe, batch_rows, kept_first
from transformer.data import held_out
from transformer.data.documents.packing import (
    Text,
    TextBatch,
    TextPlan,
    encode_text,
    pack_rows,
    prepare_text,
)
from transformer.data.documents.sources import open_documents
from transformer.data.tokenizer import Tokenizer, load_tokenizer, save_tokenizer
from transformer.errors import RunError, UserError
from transformer.inference.generator import Generator
from transformer.losses import TokenSums
from transformer.metrics.tokens import TokenMetrics, summarize
from transformer.model.build import build_model
from transformer.model.config import ModelConfig
from transformer.tasks.numbers import hparams_of, model_fields, rates_of, text_of

TOKENIZER = "tokenizer.model"
PIECES = 200  # of a split whose likelihoods are kept one by one
LINE_END = re.compile(r"\r\n?|\n")


class LanguageModelTask:
    """Trains and scores a language model; see `tasks.base.Task` for the rest of it.

    Args:
      config: the whole experiment.
      warn: called with a line for what the user should know.
      like: another task, whose text is used where the config says the same of it.
      folder: of the run, whose tokenizer is used if it is of the same text.
    """

    unit = "tokens"
    columns = ("tokens", "perplexity", "word_perplexity", "bits_per_byte", "accuracy")

    def __init__(
        self,
        config: Any,
        warn: Callable[[str], None] = print,
        like: "LanguageModelTask | None" = None,
        folder: Path | None = None,
    ):
        self.config, self.d_model = config, config.model.d_model
        if like is not None and text_of(like.config) == text_of(config):
            self._text, self._tokenizer = like._text, like._tokenizer
            self._documents, self._held_out = like._documents, like._held_out
        else:
            documents = open_documents(config.data)
            saved = folder and folder / TOKENIZER
            self._text, self._tokenizer = prepare_text(
                documents["train"], config.data, config.tokenizer, saved, warn
            )
            self._documents = {split: own for split, own in documents.items() if split != "train"}
            self._held_out = _encode(self._documents, self._tokenizer, config)
            self._check_held_out(warn)
        self.splits = tuple(self._held_out)
        self.predictor = make_generator(config, self._tokenizer)
        self.plan = self._make_plan()

    @classmethod
    def from_folder(
        cls, folder: Path, config: Any, warn: Callable[[str], None] = print
    ) -> "LanguageModelTask":
        task = cls.__new__(cls)
        task.config, task.d_model = config, config.model.d_model
        task.predictor = cls.load(folder, config, warn)
        task._tokenizer = task.predictor.tokenizer
        # A test text is not all runs'.
        there = [s for s in ("validation", "test") if s == "validation" or held_out.has(folder, s)]
        documents = {split: held_out.read_documents(folder, split) for split in there}
        task._held_out = _encode(documents, task._tokenizer, config)
        task.splits = tuple(task._held_out)
        return task

    @staticmethod
    def load(folder: Path, config: Any, warn: Callable[[str], None]) -> Generator:
        return make_generator(config, load_tokenizer(folder / TOKENIZER))

    def with_config(self, config: Any) -> "LanguageModelTask":
        task = copy.copy(self)
        task.config = config
        task.plan = task._make_plan()
        return task

    def _make_plan(self) -> TextPlan:
        data, rows = self.config.data, self._rows_at_once
        return TextPlan(self._text, self.config.seed, rows, data.context, data.each_position)

    @property
    def _rows_at_once(self) -> int:
        """Rows of a batch of held-out text, and at most of training text."""
        return max(1, self.config.data.batch_tokens // self.config.data.context)

    def _check_held_out(self, warn: Callable[[str], None]) -> None:
        if "validation" not in self._held_out:
            raise UserError(
                "there is no validation text: set --config.data.validation_share above 0, or name "
                "a file in --config.data.validation_source"
            )
        for split, text in self._held_out.items():
            if not len(text.store.tokens):
                raise UserError(f"the {split} text is empty: name a file with some")
            if text.unknown:
                share = text.unknown / len(text.store.tokens)
                warn(f"warning: {share:.3%} of the tokens of {split} are not in the vocabulary")

    def init_params(self, key: jax.Array) -> Any:
        return jax.jit(self.predictor.init_params)(key)

    def hparams(self) -> dict[str, float]:
        return hparams_of(self.config)

    def loss(self, params: Any, batch: TextBatch, hparams: dict, key: jax.Array) -> TokenSums:
        variables, smoothing = {"params": params}, hparams["label_smoothing"]
        return self.predictor.token_sums(variables, batch, smoothing, rates_of(hparams), key)

    def evaluate(self, params: Any, split: str, final: bool) -> dict[str, Any]:
        """Returns how well the text of a split is foreseen, all of it.

        Documents are read from their start, and texts longer than a row in pieces, each without
        what was before it. See `scores_of` for the numbers. Beside final ones stand the
        log-probability in nats, the tokens and the text of some pieces.
        """
        variables = {"params": params}
        sums = jax.device_get(list(self.predictor.evaluate_sums(variables, *self._rows(split))))
        scores = self._scores(split, sums)
        if not final:
            return scores
        pieces = self.predictor.score_pieces(
            variables, self._held_out[split], self.config.data.context, PIECES
        )
        lines = [
            f"{log_prob:.4f}\t{tokens}\t{LINE_END.sub('⏎', text)}"
            for log_prob, tokens, text in pieces
        ]
        return {**scores, "texts": {f"likelihoods/{split}.tsv": lines}}

    def probe(self, params: Any) -> Probe:
        return self._head_probe({"params": params})

    @functools.cached_property
    def _head_probe(self) -> HeadProbe:
        """Of rows spread over the validation text; what is kept of one is where it begins."""
        attend, settings = self.predictor.batch_attention, self.config.evaluate
        data, model = self.config.data, self.config.model
        text, context = self._held_out["validation"], data.context
        count, kept = settings.probe_statistics, settings.probe_sentences
        every = max(1, len(text.store.tokens) // (context * max(1, count)))
        found = list(itertools.islice(pack_rows(text, 1, context), 0, count * every, every))
        if not found:
            return HeadProbe(attend, [], [])
        order = kept_first(range(len(found)), range(len(found)), kept)
        maps = model.num_heads * model.num_decoder_layers
        rows = min(len(found), batch_rows(context, maps, data.batch_tokens))
        empty = TextBatch(*np.zeros((3, 1, context), np.int32))
        found = [found[i] for i in order] + [empty] * (-len(found) % rows)
        batches = [
            TextBatch(*map(np.concatenate, zip(*found[first : first + rows], strict=True)))
            for first in range(0, len(found), rows)
        ]
        begins = [row.tokens[row.segments == 1][:READABLE] for row in found[:kept]]
        tokens = [([], self.predictor.pieces(begin)) for begin in begins]
        return HeadProbe(attend, batches, tokens)

    def evaluate_runs(self, params: Any, split: str) -> list[dict[str, Any]]:
        variables = {"params": params}
        batches = self.predictor.evaluate_sums(variables, *self._rows(split), stacked=True)
        sums = [list(map(TokenSums, *batch)) for batch in jax.device_get(list(batches))]
        return [self._scores(split, own) for own in zip(*sums, strict=True)]

    def held_out_batches(self, split: str) -> Iterator[TextBatch]:
        return pack_rows(*self._rows(split))

    def held_out_sums(self, variables: Any, batch: TextBatch) -> TokenSums:
        return self.predictor.token_sums(variables, batch, 0.0)

    def _rows(self, split: str) -> tuple[Text, int, int]:
        return self._held_out[split], self._rows_at_once, self.config.data.context

    def _scores(self, split: str, sums: Any) -> dict[str, Any]:
        metrics = functools.reduce(TokenMetrics.merge, map(TokenMetrics.from_sums, sums))
        total = sum(float(batch.nll) for batch in sums)
        text = self._held_out[split]
        cut = f"context:{self.config.data.context}|documents:{self.config.data.documents}"
        cut = f"text:{text.digest}|{cut}"
        return {
            **summarize(metrics),
            **scores_of(total, text),
            "perplexity_signature": f"{cut}|vocabulary:{self._tokenizer.digest}",
            "word_perplexity_signature": cut,
            "bits_per_byte_signature": cut,
        }

    def save_assets(self, workdir: Path) -> None:
        save_tokenizer(workdir / TOKENIZER, self._tokenizer)
        held_out.save(workdir, self._documents)

    def fingerprint(self) -> str:
        return self.predictor.fingerprint()

    def describe(self) -> list[str]:
        plan, text = self.plan, self._text
        tokens = len(text.store.tokens)
        what = "running text" if text.whole else f"{text.documents:,} documents"
        others = ", ".join(f"{len(t.store.tokens):,} {s}" for s, t in self._held_out.items())
        ids = text.store.tokens[:24]
        return [
            f"{what}: {tokens:,} tokens to train on, {others}; {text.unknown / tokens:.3%} "
            f"unknown; vocabulary {self._tokenizer.vocab_size}, {text.bytes / tokens:.2f} bytes a "
            "token",
            *text.lost.describe(),
            f"{plan.epoch_length} batches an epoch, of {plan.rows} x {plan.context} tokens",
            f"  {' '.join(self._tokenizer.pieces(ids))} ...".replace("\n", "⏎"),
        ]

    def data_summary(self) -> dict[str, Any]:
        plan, text = self.plan, self._text
        texts = {"train": text, **self._held_out}
        return {
            "splits": {
                split: {
                    "tokens": len(own.store.tokens),
                    "documents": own.documents,
                    "words": own.words,
                    "bytes": own.bytes,
                }
                for split, own in texts.items()
            },
            "unknown_share": text.unknown / len(text.store.tokens),
            "vocabulary": {"all": self._tokenizer.vocab_size},
            "batches_per_epoch": plan.epoch_length,
            "shapes": [[plan.rows, plan.context]],
        }


def _encode(
    documents: Mapping[str, Iterable[str]], tokenizer: Tokenizer, config: Any
) -> dict[str, Text]:
    """The documents of each split as tokens."""
    whole = config.data.documents == "file"
    return {split: encode_text(own, tokenizer, whole) for split, own in documents.items()}


def scores_of(nll: float, text: Text) -> dict[str, int | float]:
    """Returns what is said of a text's negative log-likelihood in units that vocabularies share.

    `word_perplexity` is exp(nll / words), where each end of a document counts as a word;
    `bits_per_byte` is nll / (ln 2 * bytes), where it counts as a byte. `tokens` are those that
    perplexity, exp(nll / tokens), is a mean over.

    Args:
      nll: of all tokens of the text, ends of documents among them, in nats.

    Source: Jelinek et al. 1977 (perplexity); Gao et al. 2020, "The Pile", section 3.1 (bits per
    byte).
    """
    words, size = text.words + text.ends, text.bytes + text.ends
    return {
        "tokens": len(text.store.tokens),
        "word_perplexity": math.exp(min(nll / max(1, words), 700.0)),
        "bits_per_byte": nll / math.log(2) / max(1, size),
    }


def make_generator(config: Any, tokenizer: Tokenizer) -> Generator:
    """Returns the language model of a config and its tokenizer, a decoder alone.

    Raises:
      UserError: the config describes no model, or it cannot read a row.
    """
    fields = model_fields(config)
    sizes = {"source_vocab_size": tokenizer.vocab_size, "target_vocab_size": tokenizer.vocab_size}
    model_config = ModelConfig(**{**fields, **sizes, "num_encoder_layers": 0})
    model = build_model(model_config)
    limit, context = model.max_positions, config.data.context
    if limit is not None and context > limit:
        raise RunError(
            f"data.context={context} is more than the model.max_length={limit} positions that are "
            f"learned: set --config.model.max_length={context}"
        )
    whole = config.data.documents == "file"
    return Generator(model, tokenizer, config.decode, context, whole)
