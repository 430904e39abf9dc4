"""Translation: a corpus, a model and how well one renders the other."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from transformer.analysis.snapshots import HeadSnapshots
from transformer.data import held_out
from transformer.data.holdout import splits_held_out
from transformer.data.pairs import Pair
from transformer.data.parallel.batches import Batch, BatchPlan
from transformer.data.parallel.encode import Corpus, prepare_corpus, preview, tokenizer_names
from transformer.data.parallel.sources import open_source
from transformer.data.splits import SPLITS
from transformer.data.tokenizer import Tokenizer, load_tokenizer, save_tokenizer
from transformer.decode import PENALTIES
from transformer.errors import RunError, UserError
from transformer.inference.base import Params
from transformer.inference.translator import Translation, Translator
from transformer.losses import TokenSums
from transformer.metrics.text import corpus_scores
from transformer.metrics.tokens import TokenMetrics, summarize
from transformer.model.build import build_model
from transformer.model.config import ModelConfig
from transformer.tasks.base import TokenTask
from transformer.tasks.numbers import model_fields
from transformer.tasks.pair_snapshots import snapshot_of_pairs


class TranslationText(NamedTuple):
    """Sentence pairs by split, and the training text as tokens if there is one."""

    pairs: Mapping[str, Iterable[Pair]]
    corpus: Corpus | None


class TranslationTask(TokenTask):
    """Trains and scores a translator; see `tasks.base.Task` for the rest of it."""

    unit = "target tokens"

    text: TranslationText
    predictor: Translator
    plan: BatchPlan

    def __init__(self, config: ConfigDict, *args: Any, **keywords: Any):
        _check_scores(config.evaluate)
        super().__init__(config, *args, **keywords)

    def read_text(self, folder: Path | None) -> TranslationText:
        config, pairs = self.config, open_source(self.config.data)
        for split in ("validation", "test"):
            if not next(iter(pairs[split]), None):
                raise UserError(
                    f"the {split} set is empty: set --config.data.{split}_size to 1 or more, or "
                    f"name a file in --config.data.{split}_source"
                )
        scored = {split: pairs[split] for split in SPLITS[1:]}
        corpus = prepare_corpus(
            pairs["train"], config.data, config.tokenizer, folder, self.warn, scored
        )
        return TranslationText(pairs, corpus)

    def read_kept_text(self, folder: Path) -> TranslationText:
        _check_scores(self.config.evaluate)
        pairs = {split: held_out.read_pairs(folder, split) for split in self.splits}
        return TranslationText(pairs, None)

    @property
    def _corpus(self) -> Corpus:
        """The training text, which a task made by `from_folder` lacks."""
        assert self.text.corpus is not None, "a run's folder keeps no training text"
        return self.text.corpus

    def make_predictor(self) -> Translator:
        corpus = self._corpus
        tokenizers = corpus.source_tokenizer, corpus.target_tokenizer
        return make_translator(self.config, *tokenizers, self.warn)

    @staticmethod
    def load(folder: Path, config: ConfigDict, warn: Callable[[str], None]) -> Translator:
        return make_translator(config, *load_tokenizers(folder), warn)

    @property
    def splits(self) -> tuple[str, ...]:
        return (
            "validation",
            "test",
            *(["length_generalization"] if self.config.data.length_generalization_size else []),
        )

    def make_plan(self) -> BatchPlan:
        data, corpus = self.config.data, self._corpus
        plan = BatchPlan(
            corpus.source,
            corpus.target,
            self.config.seed,
            data.batch_tokens,
            data.num_buckets,
            data.batch_multiple,
            data.batch_sentences,
            corpus.samplers,
        )
        length, limit = plan.buckets[-1].length, self.predictor.model.max_positions
        if limit is not None and length > limit:
            raise RunError(
                f"a training sentence has {length} tokens, more than the "
                f"model.max_length={limit} learned positions: raise "
                "--config.model.max_length, or lower --config.data.max_tokens"
            )
        return plan

    def evaluate(self, params: Params, split: str, final: bool) -> dict[str, Any]:
        """Returns loss, perplexity and accuracy of the references, and BLEU of translations.

        A split "length_generalization" is there with `data.length_generalization_size`.

        Beside the texts of a final one stand the log-probability, in nats, and the tokens of each
        translation, as the mode `score` writes them, here of the tokens that the search found.

        Evaluations during training decode up to `evaluate.max_sentences`, with a beam of
        `evaluate.training_beam_size`; the final one all, with `decode.beam_size`.
        """
        pairs = self.decoded_pairs(split, final)
        beam = self.config.decode.beam_size if final else self.config.evaluate.training_beam_size
        variables = {"params": params}
        [losses] = map(_summarize, self.split_sums(variables, split, stacked=False))
        best = self.predictor.translate(variables, [pair.source for pair in pairs], beam)
        hypotheses = [translations[0].text for translations in best]
        scores = losses | self.text_scores(hypotheses, pairs, final)
        texts = {
            f"translations/{split}.txt": hypotheses,
            f"translations/{split}.source.txt": [pair.source for pair in pairs],
            f"translations/{split}.reference.txt": [pair.target for pair in pairs],
            f"translations/{split}.scores.tsv": [
                f"{self._log_probability(found[0]):.4f}\t{found[0].tokens}" for found in best
            ],
        }
        return {**scores, "texts": texts} if final else scores

    def _log_probability(self, found: Translation) -> float:
        """The log-probability of what a search found."""
        settings = self.config.decode
        penalty = PENALTIES[settings.length_penalty](found.tokens, settings.alpha)
        return found.score * float(penalty)

    def make_head_snapshot(self) -> HeadSnapshots:
        pairs = self.examples("validation", self.config.evaluate.snapshot_statistics)
        return snapshot_of_pairs(self.predictor, pairs, self.config)

    def evaluate_runs(self, params: Params, split: str) -> list[dict[str, Any]]:
        pairs = self.decoded_pairs(split, final=False)
        beam = self.config.evaluate.training_beam_size
        variables = {"params": params}
        losses = map(_summarize, self.split_sums(variables, split, stacked=True))
        found = self.predictor.translate_stacked(variables, [pair.source for pair in pairs], beam)
        return [
            loss | self.text_scores([translations[0].text for translations in best], pairs, False)
            for loss, best in zip(losses, found, strict=True)
        ]

    def decoded_pairs(self, split: str, final: bool) -> list[Pair]:
        """Returns the pairs that are decoded; evaluations during training take the first ones."""
        pairs = list(self.text.pairs[split])
        return pairs if final else pairs[: self.config.evaluate.max_sentences]

    def text_scores(self, hypotheses: list[str], pairs: list[Pair], final: bool) -> dict[str, Any]:
        """Returns BLEU and the other scores of translations, see `metrics.corpus_scores`."""
        settings = self.config.evaluate
        scores = corpus_scores(
            hypotheses,
            [pair.target for pair in pairs],
            settings.sacrebleu_tokenizer,
            settings.moses,
            settings.bootstrap if final else 0,
        )
        return {**scores, "sentences": len(pairs)}

    def _encoded(self, split: str) -> list[list[list[int]]]:
        """The sources and the targets of a split, cut to what the model reads."""
        pairs, limit = list(self.text.pairs[split]), self.predictor.max_length - 1
        return [
            [ids[:limit] for ids in tokenizer.encode(texts)]
            for tokenizer, texts in (
                (self.predictor.source_tokenizer, [pair.source for pair in pairs]),
                (self.predictor.target_tokenizer, [pair.target for pair in pairs]),
            )
        ]

    def held_out_batches(self, split: str) -> Iterator[Batch]:
        return (batch for _, batch in self.predictor.batches(*self._encoded(split), size=None))

    def examples(self, split: str, count: int) -> list[Pair]:
        """Returns `count` pairs spread over a split, for people to look at."""
        pairs = list(self.text.pairs[split])
        return pairs[:: max(1, len(pairs) // max(1, count))][:count]

    def save_assets(self, workdir: Path) -> None:
        save_tokenizers(workdir, self._corpus.source_tokenizer, self._corpus.target_tokenizer)
        held_out.save(workdir, {split: self.text.pairs[split] for split in self.splits})

    def describe(self) -> list[str]:
        plan, corpus = self.plan, self._corpus
        shapes = ", ".join(f"{b.rows}x{b.length}" for b in plan.buckets)
        lines = [
            self._kept(),
            *(line for split, own in corpus.held_out.items() for line in own.describe(split)),
            f"{corpus.unknown_fraction:.3%} unknown tokens; vocabularies: "
            f"{corpus.source_tokenizer.vocab_size} source, "
            f"{corpus.target_tokenizer.vocab_size} target"
            + (" (the same)" if self.config.tokenizer.joint else ""),
            *corpus.lost.describe(),
            *self._describe_sampling(),
            f"{plan.epoch_length} batches per epoch, {plan.padding_fraction:.1%} padding, "
            f"shapes {shapes}",
        ]
        pairs = itertools.islice(self.text.pairs["train"], 3)
        for example in preview(pairs, corpus):
            lines += [f"  {example['source']}", f"  -> {example['target']}"]
        return lines

    def _describe_sampling(self) -> list[str]:
        """A line about segmentations that are drawn, none if no side has such."""
        used = [sampler for sampler in self._corpus.samplers if sampler]
        if not used:
            return []
        growth = sum(s.mean_tokens for s in used) / sum(int(s.tokens.offsets[-1]) for s in used)
        return [
            f"sampled subwords of {' and '.join(s.name for s in used)}: {growth:.2f} times as many "
            f"tokens; {self.plan.fallback_fraction():.2%} of the sentences keep the best "
            "segmentation, since no draw fits their batch"
        ]

    def data_summary(self) -> dict[str, Any]:
        plan, corpus = self.plan, self._corpus
        counts = {split: len(list(self.text.pairs[split])) for split in self.splits}
        counts = {"train": corpus.report.kept, **counts}
        found = {split: own.counts() for split, own in corpus.held_out.items()}
        sizes = {
            side: tokenizer.vocab_size
            for side, tokenizer in (
                ("source", corpus.source_tokenizer),
                ("target", corpus.target_tokenizer),
            )
        }
        joint = self.config.tokenizer.joint
        return {
            "splits": {
                split: {"sentence pairs": count, **found.get(split, {})}
                for split, count in counts.items()
            },
            "cleaning": {
                "read": corpus.report.total,
                "kept": corpus.report.kept,
                "dropped": corpus.report.dropped,
            },
            "oov_rate": corpus.unknown_fraction,
            "vocabulary": {"source and target": sizes["source"]} if joint else sizes,
            "batches_per_epoch": plan.epoch_length,
            "padding_fraction": plan.padding_fraction,
            "shapes": [[bucket.rows, bucket.length] for bucket in plan.buckets],
            "preview": preview(self.text.pairs["train"], corpus),
        }

    def _kept(self) -> str:
        """What cleaning kept of the training text, and what was taken out of it before."""
        counts = [
            f"{len(list(self.text.pairs[split])):,} for {split}"
            for split in splits_held_out(self.config.data)
        ]
        aside = f"; held out before: {', '.join(counts)}" if counts else ""
        return f"{self._corpus.report}{aside}"


def _summarize(sums: Sequence[TokenSums]) -> dict[str, float]:
    """Loss, perplexity and accuracy of the references."""
    return summarize(TokenMetrics.from_batches(sums))


def make_translator(
    config: ConfigDict,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    warn: Callable[[str], None],
) -> Translator:
    """Returns the translator of a config and its tokenizers.

    Raises:
      UserError: the config describes no model.
    """
    if config.model.tied_embeddings == "all" and source_tokenizer.model != target_tokenizer.model:
        raise UserError(
            "model.tied_embeddings='all' needs one vocabulary for both languages: set "
            "--config.tokenizer.joint=True, or --config.model.tied_embeddings=decoder"
        )
    for side in ("encoder", "decoder"):
        if not config.model[f"num_{side}_layers"]:
            raise UserError(
                f"model.num_{side}_layers=0: a translator has an encoder and a decoder; set "
                f"--config.model.num_{side}_layers to 1 or more"
            )
    fields = model_fields(config)
    model_config = ModelConfig(
        source_vocab_size=source_tokenizer.vocab_size,
        target_vocab_size=target_tokenizer.vocab_size,
        **fields,
    )
    model = build_model(model_config)
    return Translator(model, source_tokenizer, target_tokenizer, config.decode, warn)


def _check_scores(settings: ConfigDict) -> None:
    """Raises UserError where sacreBLEU lacks a tokenizer, now and not after the training."""
    try:
        corpus_scores(["a"], ["a"], settings.sacrebleu_tokenizer)
    except Exception as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise UserError(
            f"evaluate.sacrebleu_tokenizer='{settings.sacrebleu_tokenizer}' cannot be used "
            f"({reason}): choose one of 13a, intl, char, zh, none, or install what it needs"
        ) from None


def save_tokenizers(workdir: Path, source: Tokenizer, target: Tokenizer) -> None:
    """Writes `tokenizer.model`, or `tokenizer.source.model` and `tokenizer.target.model`."""
    joint = source.model == target.model
    for name, tokenizer in zip(tokenizer_names(joint), (source, target), strict=False):
        save_tokenizer(workdir / name, tokenizer)


def load_tokenizers(workdir: Path) -> tuple[Tokenizer, Tokenizer]:
    """Returns the source's and the target's tokenizer of a run.

    Raises:
      UserError: a file is missing or is no tokenizer.
    """
    joint = (workdir / tokenizer_names(True)[0]).exists()
    tokenizers = [load_tokenizer(workdir / name) for name in tokenizer_names(joint)]
    return tokenizers[0], tokenizers[-1]
