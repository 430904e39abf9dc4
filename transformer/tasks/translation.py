"""Translation with an encoder-decoder model that is trained on parallel corpora."""

import dataclasses
import functools
import itertools
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from ml_collections import ConfigDict

from transformer.analysis.snapshots import HeadSnapshots
from transformer.data import held_out
from transformer.data.batches import Batch, BatchPlan
from transformer.data.buckets import Mixture, mix
from transformer.data.corpora import Tagger, corpora_of, parts_of, symbols_of
from transformer.data.held_out import HELD_OUT
from transformer.data.pairs import Pair
from transformer.data.parallel import sources, training_pairs
from transformer.data.parallel.corpus import tokenizer_names
from transformer.data.parallel.training_pairs import Hashes
from transformer.data.tokenizer import Tokenizer, load_tokenizer, save_tokenizer
from transformer.errors import UserError
from transformer.inference.base import Params, Variables
from transformer.inference.segments import Segmenter
from transformer.inference.translator import Translation, Translator
from transformer.metrics.tokens import add, summarize
from transformer.model.build import build_model
from transformer.model.config import ModelConfig
from transformer.tasks import base, pair_scores, pair_text
from transformer.tasks.base import PAIRS, TokenTask, check_positions, model_fields, plan_sizes
from transformer.tasks.pair_scores import cut_line, find_translations

logger = logging.getLogger(__name__)


class TranslationText(NamedTuple):
    """The sentence pairs of each split, and the tokenised corpus (None if a run is loaded).

    `earlier` has hashes of pairs that the runs of `train.init_from` were trained on, or is None.
    `split` is a function that splits a line, given the line number, into segments to translate.
    """

    pairs: Mapping[str, Iterable[Pair]]
    corpus: Any  # Corpus
    earlier: Hashes | None = None
    split: Callable[[str, int], list[str]] = lambda line, number: [line]


class TranslationTask(TokenTask):
    """Trains and evaluates a translation model; see `tasks.base.Task` for inherited members."""

    unit, noun = "target tokens", "sentence"
    model_noun, invitation = "translator", "Type to translate"
    sources = sources.REGISTRY
    metrics = "translations"
    operations = ("translate", "score", "evaluate", "next_tokens", "alternatives", "beam")
    operations += ("confidence", "align", "lens", "attribution")
    reads, is_translated = PAIRS, True

    text: TranslationText
    predictor: Translator
    plan: BatchPlan
    plan_type: ClassVar[type[BatchPlan]] = BatchPlan
    loss_references: ClassVar[str] = "first"  # which references the loss uses, for the signature

    def read_text(self, folder: Path | None) -> TranslationText:
        pair_scores.check_scores(self.config.evaluate)
        earlier = training_pairs.read_earlier(self.config.train.init_from, folder)
        links = base.needs_links(self.config.train, self.config.data)
        settings = self.text_settings(folder)
        pairs, corpus = pair_text.read_text(*settings, earlier=earlier, with_links=links)
        return TranslationText(pairs, corpus, earlier)

    def read_kept_text(self, folder: Path) -> TranslationText:
        pair_scores.check_scores(self.config.evaluate)
        data, pairs = self.config.data, {}
        for split in HELD_OUT if data.length_generalization_size else HELD_OUT[:2]:
            parts = parts_of(data, split)
            pairs |= {part: held_out.read_pairs(folder, part) for part in parts}
            pairs[split] = [pair for part in parts for pair in pairs[part]]
        return TranslationText(pairs, None)

    def make_given_text(self, folder: Path, given: Sequence[Pair]) -> TranslationText:
        """Returns `text` with "test" pairs; warns if pairs are truncated or used in training."""
        pair_scores.check_scores(self.config.evaluate)
        tags = Tagger(self.config.data, None)
        untagged = [pair._replace(source=tags.split(pair.source)[1]) for pair in given]
        lines = cut_line(given, self.predictor), training_pairs.seen_line(folder, untagged)
        for line in filter(None, lines):
            logger.warning(line)
        encode, longest = self.predictor.source_tokenizer.encode, self.predictor.max_length
        # As in held-out text, a line within the length limit is not split.
        split = Segmenter(self.config, folder, encode, longest, keep_whole=True)
        return TranslationText({"test": given}, None, split=split)

    def _parts(self, split: str) -> list[str]:
        """Returns the names of a split's per-corpus subsets, or the split's name if it has none."""
        parts = parts_of(self.config.data, split)
        return parts if parts[0] in self.text.pairs else [split]  # the latter for users' texts

    def text_digest(self) -> str:
        return self.text.corpus.arrays_digest if self.text.corpus else ""

    @property
    def train_tokens(self) -> dict[str, int]:
        return {"source": len(self.plan.source.tokens), "target": len(self.plan.target.tokens)}

    def make_predictor(self) -> Translator:
        corpus = self.text.corpus
        return make_translator(self.config, corpus.source_tokenizer, corpus.target_tokenizer)

    def load(self, folder: Path) -> Translator:
        return make_translator(self.config, *load_tokenizers(folder))

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(split for split in HELD_OUT if split in self.text.pairs)

    def make_plan(self) -> BatchPlan:
        corpus = self.text.corpus
        sizes = self.config.seed, *plan_sizes(self.config.data), self._mixture()
        plan = self.plan_type(corpus.source, corpus.target, *sizes, sampler=corpus.sampler)
        plan.links = corpus.links if self.config.train.guided_alignment else None
        length, limit = plan.buckets[-1].length, self.predictor.model.max_positions
        check_positions("the longest training sentence", length, limit)
        return plan

    def _mixture(self) -> Mixture | None:
        """Returns how often each corpus is sampled per epoch, or None for a single corpus."""
        data, sizes = self.config.data, [report.kept for report in self.text.corpus.reports]
        if len(sizes) < 2:
            return None
        return mix(sizes, [corpus.weight for corpus in corpora_of(data)], data.temperature)

    def evaluate(self, params: Params, split: str, final: bool) -> dict[str, Any]:
        """Returns loss, perplexity and accuracy of the references, and BLEU of the translations.

        Final scores also include `texts` (see `pair_scores.text_files`), and for the test set also
        `parts`: the final scores of each corpus if there are several, and of perturbed copies of
        `evaluate.perturbed_sentences` pairs.

        Evaluations during training decode up to `evaluate.max_sentences` sentences with a beam size
        of `evaluate.training_beam_size`. The maximum length of a translation is 1.5 times the
        reference length plus 5 tokens. The final evaluation decodes all sentences with
        `decode.search`.
        """
        pairs = self.decoded_pairs(split, final)
        variables = {"params": params}
        best = self._translate(variables, pairs, final)
        scores = self._scores(variables, split, pairs, best, final)
        if final and split == "test":
            rest, names = iter(best), self._parts(split)
            parts = {
                part: self._scores(variables, part, of_part, [next(rest) for _ in of_part])
                for part in (names if len(names) > 1 else ())
                for of_part in [list(self.text.pairs[part])]
            }
            if parts := parts | self._perturbed_scores(variables, pairs, best):
                scores["parts"] = parts
        return scores

    def _perturbed_scores(
        self, variables: Variables, pairs: list[Pair], best: list[list[Translation]]
    ) -> dict[str, Any]:
        """Scores perturbed copies of the test set; `best` has translations of the original."""
        size = self.config.evaluate.perturbed_sentences
        if not size or self.reads != PAIRS or any(pair.further for pair in pairs):
            return {}  # no text, or a copied name might replace different words in the references
        spread = slice(None, None, math.ceil(len(pairs) / size))
        clean = [each.text for each in find_translations(best[spread], self.config.decode)]
        words = self.predictor.source_tokenizer.words
        words = dataclasses.replace(words, symbols=words.symbols + symbols_of(self.config.data))
        copies = pair_scores.perturb(pairs[spread], words)
        self.text = self.text._replace(pairs={**self.text.pairs, **copies})

        def score(split: str, copy: list[Pair]) -> dict[str, Any]:
            return self._scores(variables, split, copy, self._translate(variables, copy, True))

        return pair_scores.score_copies(copies, pairs[spread], clean, score, self.text_scores)

    def _translate(
        self, variables: Variables, pairs: Sequence[Pair], final: bool
    ) -> list[list[Translation]]:
        """Returns, for each source, the best translation of each of its segments."""
        config = self.config
        beam_size = None if final else config.evaluate.training_beam_size
        limits = None if final else self._limits(pairs)
        segments = [self.text.split(pair.source, number) for number, pair in enumerate(pairs, 1)]
        numbers = [number for number, parts in enumerate(segments, 1) for _ in parts]
        flat = list(itertools.chain.from_iterable(segments))
        translations = iter(
            self.predictor.translate(variables, flat, beam_size, numbers, num_best=1, limits=limits)
        )
        return [[next(translations)[0] for _ in parts] for parts in segments]

    def _limits(self, pairs: Sequence[Pair]) -> list[int]:
        """Returns length limits for early training, when models rarely generate end-of-sentence."""
        longest = [max(pair.references, key=len) for pair in pairs]
        encoded = self.predictor.target_tokenizer.encode(longest)
        return [len(ids) * 3 // 2 + 5 for ids in encoded]

    def _scores(
        self,
        variables: Variables,
        split: str,
        pairs: list[Pair],
        best: list[list[Translation]],
        final: bool = True,
    ) -> dict[str, Any]:
        """Returns the scores of a split or subset; `best` has the translation of each segment."""
        [sums] = self.split_sums(variables, split, stacked=False)
        translations = find_translations(best, self.config.decode)
        texts = [each.text for each in translations]
        scores = summarize(add(sums)) | self.text_scores(texts, pairs, final)
        if not final:
            return scores
        degenerate = sum(each.degenerate > 0 for each in translations)
        scores["degenerate"] = degenerate / len(translations)
        targets = [pair.target for pair in self.loss_pairs(split)]
        scores |= pair_scores.loss_scores(sums, targets, self.loss_references, self.predictor)
        scores = self.with_intervals(scores, variables, split)
        return {**scores, "texts": pair_scores.text_files(split, pairs, translations)}

    @functools.cached_property
    def head_snapshot(self) -> HeadSnapshots:
        pairs = self.examples("validation", self.config.evaluate.snapshot_statistics)
        longest = min(self.max_tokens, self.predictor.max_length)
        return pair_text.snapshot_of_pairs(self.predictor, pairs, self.config, longest)

    @property
    def max_tokens(self) -> int:
        """The maximum number of tokens per side of a training pair, with end-of-sentence."""
        return self.config.data.max_tokens

    def evaluate_runs(self, params: Params, split: str) -> list[dict[str, Any]]:
        pairs = self.decoded_pairs(split, final=False)
        beam_size = self.config.evaluate.training_beam_size
        variables = {"params": params}
        losses = [summarize(add(sums)) for sums in self.split_sums(variables, split, stacked=True)]
        sources = [pair.source for pair in pairs]
        limits = self._limits(pairs)
        runs = self.predictor.translate_stacked(variables, sources, beam_size, limits=limits)
        return [
            loss | self.text_scores([translations[0].text for translations in best], pairs, False)
            for loss, best in zip(losses, runs, strict=True)
        ]

    def decoded_pairs(self, split: str, final: bool) -> list[Pair]:
        """Returns the pairs to decode; evaluations during training decode only the first pairs.

        With several corpora, each contributes its first pairs, in proportion to its size.
        """
        parts = [list(self.text.pairs[part]) for part in self._parts(split)]
        total = sum(map(len, parts))
        most = total if final else min(total, self.config.evaluate.max_sentences)
        ends = [0, *(end * most // total for end in itertools.accumulate(map(len, parts)))]
        counts = (end - start for start, end in itertools.pairwise(ends))
        return [pair for part, count in zip(parts, counts, strict=True) for pair in part[:count]]

    def text_scores(self, hypotheses: list[str], pairs: list[Pair], final: bool) -> dict[str, Any]:
        """Returns the scores of the pairs' translations; see `pair_scores.text_scores`."""
        return pair_scores.text_scores(hypotheses, pairs, self.config.evaluate, final)

    def loss_pairs(self, split: str) -> list[Pair]:
        """Returns the pairs of a split for which the loss is computed."""
        return list(self.text.pairs[split])

    def held_out_batches(self, split: str) -> Iterator[Batch]:
        return (batch for _, batch in self.numbered_batches(split))

    def numbered_batches(self, split: str) -> Iterator[tuple[list[int], Batch]]:
        """Yields (indices into `loss_pairs`, batch) for each batch of a held-out split."""
        limit = self.predictor.max_length - 1
        encoded = self.predictor.encode_pairs(self.loss_pairs(split))
        sources, targets = ([ids[:limit] for ids in side] for side in encoded)
        return self.predictor.batches(sources, targets)

    def examples(self, split: str, count: int) -> list[Pair]:
        """Returns `count` pairs spread over a split, for display."""
        pairs = list(self.text.pairs[split])
        return pairs[:: max(1, len(pairs) // max(1, count))][:count]

    def save_assets(self, workdir: Path) -> None:
        corpus = self.text.corpus
        save_tokenizers(workdir, corpus.source_tokenizer, corpus.target_tokenizer)
        parts = itertools.chain(*map(self._parts, self.splits))
        held_out.save(workdir, {part: self.text.pairs[part] for part in parts})
        training_pairs.save_hashes(workdir, corpus.hashes, self.text.earlier)

    def notes(self) -> list[str]:
        pairs = self.text.pairs
        references = (pair.target for pair in pairs["validation"])
        cut = [cut_line(list(pairs[split]), self.predictor, split) for split in self.splits]
        return [
            *pair_text.describe_pairs(self.config.data, pairs, self.text.corpus, self.plan),
            pair_scores.choose_tokenizer(self.config.evaluate, references)[1],
            *filter(None, cut),
        ]

    def data_summary(self) -> dict[str, Any]:
        text = self.text.pairs, self.text.corpus, self.plan
        return pair_text.summary(self.config, *text, self.splits)


def make_translator(
    config: ConfigDict, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer
) -> Translator:
    """Returns the translation model for a config and its tokenizers."""
    check_vocabularies(config.model, source_tokenizer.has_pieces_of(target_tokenizer))
    check_layers(config.model, config.task)
    sizes = source_tokenizer.vocab_size, target_tokenizer.vocab_size
    model = build_model(ModelConfig(*sizes, **model_fields(config.model)))
    return Translator(model, source_tokenizer, target_tokenizer, config.decode)


def check_layers(model: ConfigDict, task: str) -> None:
    """Raises UserError if a model has no encoder layers or no decoder layers."""
    for side in ("encoder", "decoder"):
        if not model[f"num_{side}_layers"]:
            raise UserError(
                f"model.num_{side}_layers=0: config.task={task} has an encoder and a "
                f"decoder; set config.model.num_{side}_layers to 1 or more"
            )


def check_vocabularies(model: ConfigDict, joint: bool) -> None:
    """Raises UserError if two different vocabularies would share one embedding table."""
    if model.tied_embeddings == "all" and not joint:
        raise UserError(
            "model.tied_embeddings='all' needs one vocabulary for both languages: set "
            "config.tokenizer.joint=True, or config.model.tied_embeddings=decoder"
        )


def save_tokenizers(workdir: Path, source: Tokenizer, target: Tokenizer) -> None:
    """Writes `tokenizer.model`, or `tokenizer.source.model` and `tokenizer.target.model`.

    Equal models trained on different texts get two files, as a resumed run compares origins.
    """
    joint = (source.model, source.origin) == (target.model, target.origin)
    for name, tokenizer in zip(tokenizer_names(joint), (source, target), strict=False):
        save_tokenizer(workdir / name, tokenizer)


def load_tokenizers(workdir: Path) -> tuple[Tokenizer, Tokenizer]:
    """Loads the source tokenizer and the target tokenizer of a run."""
    joint = (workdir / tokenizer_names(True)[0]).exists()
    tokenizers = [load_tokenizer(workdir / name) for name in tokenizer_names(joint)]
    return tokenizers[0], tokenizers[-1].writer()
