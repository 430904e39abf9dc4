"""Language modelling of running text or documents with a decoder-only model."""

import functools
import itertools
import logging
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from transformer.analysis.snapshots import READABLE, HeadSnapshots, batch_rows, kept_first
from transformer.data import held_out
from transformer.data.documents import (
    REGISTRY,
    Documents,
    TextBatch,
    TextPlan,
    encode_text,
    open_documents,
    pack_rows,
    pack_spans,
    prepare_text,
    read_rows,
)
from transformer.data.encode import TOKENIZER, batched
from transformer.data.tokenizer import Tokenizer, load_tokenizer, save_tokenizer
from transformer.errors import UserError
from transformer.inference.base import Params
from transformer.inference.explanations import lens_of
from transformer.inference.generator import Generator
from transformer.metrics.tokens import add, summarize
from transformer.model.build import build_model
from transformer.model.config import ModelConfig
from transformer.tasks.base import DOCUMENTS, TokenTask, check_positions, model_fields

logger = logging.getLogger(__name__)

PIECES = 200  # maximum number of chunks per split whose log-probabilities are stored
LINE_END = re.compile(r"\r\n?|\n")


class LanguageText(NamedTuple):
    """The held-out documents, the tokenised splits, and the tokenizer.

    If a run's folder is loaded, `train` is None, and the documents need not be saved again.
    """

    tokenizer: Tokenizer
    train: Any  # Text
    held_out: Mapping[str, Documents]
    documents: Mapping[str, Iterable[str]]


class LanguageModelTask(TokenTask):
    """Trains and evaluates a language model; see `tasks.base.Task` for inherited members."""

    unit, noun = "tokens", "segment"
    model_noun, invitation = "language model", "Type to continue"
    sources = REGISTRY
    metrics = "texts"
    operations = ("generate", "score", "next_tokens", "lens", "attribution")
    reads = DOCUMENTS

    text: LanguageText
    predictor: Generator
    plan: TextPlan

    def read_text(self, folder: Path | None) -> LanguageText:
        documents = dict(open_documents(self.config.data))
        if "validation" not in documents:
            raise UserError(
                "there is no validation text: set config.data.validation_fraction above 0, or name "
                "a file in config.data.validation_source"
            )
        train, tokenizer = prepare_text(documents.pop("train"), *self.text_settings(folder))
        text = self._make_text(documents, tokenizer)._replace(train=train)
        _check_held_out(text.held_out)
        return text

    def read_kept_text(self, folder: Path) -> LanguageText:
        # Some runs have no test set.
        there = ["validation"] + ["test"] * held_out.path_of(folder, "test").exists()
        texts = {split: held_out.read_documents(folder, split) for split in there}
        return self._make_text(texts, self.predictor.tokenizer)

    def make_given_text(self, folder: Path, given: Sequence[str]) -> LanguageText:
        """Returns a dataset whose only split, "test", holds the given documents."""
        text = self._make_text({"test": given}, self.predictor.tokenizer)
        _check_held_out(text.held_out)
        return text

    def _make_text(
        self, documents: Mapping[str, Iterable[str]], tokenizer: Tokenizer
    ) -> LanguageText:
        whole = self.config.data.documents == "file"
        encoded = {s: encode_text(texts, tokenizer, whole) for s, texts in documents.items()}
        return LanguageText(tokenizer, None, encoded, documents)

    def make_predictor(self) -> Generator:
        return self.make_generator(self.text.tokenizer)

    def load(self, folder: Path) -> Generator:
        return self.make_generator(load_tokenizer(folder / TOKENIZER).writer())

    def make_generator(self, tokenizer: Tokenizer) -> Generator:
        """Returns the configured language model, which is decoder-only."""
        config = self.config
        fields = {**model_fields(config.model), "num_encoder_layers": 0}
        model = build_model(ModelConfig(tokenizer.vocab_size, tokenizer.vocab_size, **fields))
        context, whole = config.data.context, config.data.documents == "file"
        check_positions(f"data.context={context}", context, model.max_positions)
        return Generator(model, tokenizer, config.decode, context, whole)

    def make_plan(self) -> TextPlan:
        data = self.config.data
        rows = min(self._rows_at_once, data.batch_sentences or self._rows_at_once)
        return TextPlan(self.text.train, self.config.seed, rows, data.context)

    @property
    def _rows_at_once(self) -> int:
        """The batch size for held-out data, which is the maximum batch size for training."""
        return max(1, self.config.data.batch_tokens // self.config.data.context)

    def evaluate(self, params: Params, split: str, final: bool) -> dict[str, Any]:
        """Returns the scores over the whole text of a split; see `scores_of`.

        Each document is read from the start. A document that exceeds the context length is split
        into chunks, which are scored without the preceding text. For some chunks, final scores
        also include the log-probability in nats, the number of tokens, the number of bytes, the
        text and the `counts`.
        """
        variables = {"params": params}
        [sums] = self.split_sums(variables, split, stacked=False)
        scores = self._scores(split, sums)
        if not final:
            return scores
        scores = self.with_intervals(scores, variables, split)
        text, context = self.text.held_out[split], self.config.data.context
        pieces = list(self.predictor.score_chunks(variables, text, context, PIECES))
        counts = {
            "bits_per_byte": np.array([(-nats / math.log(2), size) for nats, _, size, _ in pieces]),
            "nll": np.array([(-nats, tokens) for nats, tokens, _, _ in pieces], np.float64),
        }
        lines = [
            f"{log_prob:.4f}\t{tokens}\t{size}\t{LINE_END.sub('⏎', text)}"
            for log_prob, tokens, size, text in pieces
        ]
        return {**scores, "counts": counts, "texts": {f"likelihoods/{split}.tsv": lines}}

    @functools.cached_property
    def head_snapshot(self) -> HeadSnapshots:
        """Computes snapshots of validation sequences; maps cover the first tokens of a sequence."""
        attend, settings = self.predictor.batch_attention, self.config.evaluate
        data, model = self.config.data, self.config.model
        text, context = self.text.held_out["validation"], data.context
        count = settings.snapshot_statistics
        every = max(1, len(text.store.tokens) // (context * max(1, count)))
        spans = list(itertools.islice(pack_spans(text, context), 0, count * every, every))
        order = kept_first(range(len(spans)), range(len(spans)), settings.snapshot_sentences)
        spans = [spans[i] for i in order]
        maps = model.num_heads * model.num_decoder_layers
        rows = min(len(spans) or 1, batch_rows(context, maps, data.batch_tokens))
        batches = [read_rows(text, part, rows, context) for part in batched(spans, rows)]
        readable = min(settings.snapshot_sentences, len(spans))  # excludes rows of padding
        texts = [row for batch in batches for row in zip(*batch, strict=True)][:readable]
        begins = [tokens[segments == 1][:READABLE] for tokens, _, segments in texts]
        tokens = [([], self.predictor.pieces(begin)) for begin in begins]
        return HeadSnapshots(attend, batches, tokens, lens=lens_of(self.predictor, settings))

    def evaluate_runs(self, params: Params, split: str) -> list[dict[str, Any]]:
        runs = self.split_sums({"params": params}, split, stacked=True)
        return [self._scores(split, sums) for sums in runs]

    def held_out_batches(self, split: str) -> Iterator[TextBatch]:
        return pack_rows(self.text.held_out[split], self._rows_at_once, self.config.data.context)

    def _scores(self, split: str, sums: Any) -> dict[str, Any]:
        total = sum(float(batch.nll) for batch in sums)
        text = self.text.held_out[split]
        data, eos = self.config.data, "no" if text.whole else "yes"
        # The stride equals the context, since rows do not overlap.
        cut = f"eos:{eos}|context:{data.context}|stride:{data.context}|documents:{data.documents}"
        digest = self.text.tokenizer.digest
        return {
            **summarize(add(sums)),
            **scores_of(total, text),
            "perplexity_signature": f"text:{text.digest}|per:token|{cut}|vocabulary:{digest}",
            "word_perplexity_signature": f"text:{text.digest}|per:word|{cut}",
            "bits_per_byte_signature": f"text:{text.digest}|per:byte|{cut}",
        }

    def save_assets(self, workdir: Path) -> None:
        save_tokenizer(workdir / TOKENIZER, self.text.tokenizer)
        held_out.save(workdir, self.text.documents)

    def notes(self) -> list[str]:
        text = self.text.train
        start = " ".join(self.text.tokenizer.pieces(text.store.tokens[:24])).replace("\n", "⏎")
        return [f"the text begins: {start} ..."]

    def data_summary(self) -> dict[str, Any]:
        plan, text = self.plan, self.text.train
        texts = {"train": text, **self.text.held_out}
        return {
            "splits": {
                split: {
                    "tokens": len(each.store.tokens),
                    "documents": len(each.store),
                    **{unit: each.notes[unit] for unit in ("words", "bytes")},
                }
                for split, each in texts.items()
            },
            "oov_rate": text.unknown_fraction,
            "vocabulary": {"all": self.text.tokenizer.vocab_size},
            "batches_per_epoch": plan.epoch_length,
            "shapes": [list(plan.shape)],
        }


def _check_held_out(held_out: Mapping[str, Documents]) -> None:
    """Raises UserError if a split is empty; warns if tokens are not in the vocabulary."""
    for split, text in held_out.items():
        if not len(text.store.tokens):
            raise UserError(f"the {split} text is empty: name a file with some")
        if fraction := text.unknown_fraction:
            line = f"warning: {fraction:.3%} of the tokens of {split} are not in the vocabulary"
            logger.warning(line)


def scores_of(nll: float, text: Documents) -> dict[str, int | float]:
    """Returns vocabulary-independent scores of a text, computed from its log-likelihood.

    `word_perplexity` is exp(nll / words), where each end of a document counts as a word.
    `bits_per_byte` is nll / (ln 2 * bytes), where each end of a document counts as a byte. `tokens`
    is the number of tokens in the definition of perplexity, exp(nll / tokens).

    Args:
      nll: negative log-likelihood of all tokens, including ends of documents, in nats.

    Source: Jelinek et al. 1977 (perplexity); Gao et al. 2020, "The Pile", section 3.1 (bits per
    byte).
    """
    words, size = (text.notes[unit] + text.ends for unit in ("words", "bytes"))
    return {
        "tokens": len(text.store.tokens),
        "word_perplexity": math.exp(min(nll / max(1, words), 700.0)),
        "bits_per_byte": nll / math.log(2) / max(1, size),
    }
