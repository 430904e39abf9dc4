"""Data of a translation task: corpora, descriptions, statistics and attention snapshots."""

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from transformer.analysis.alignment import GoldLinks, words_of_text
from transformer.analysis.snapshots import HeadSnapshots, LinkedPair, divide
from transformer.data.batches import BatchPlan
from transformer.data.characters import word_ends
from transformer.data.cleaning import check_kept
from transformer.data.corpora import (
    CorpusSettings,
    corpora_of,
    naming,
    part_name,
    parts_of,
    symbols_of,
)
from transformer.data.encode import Restartable
from transformer.data.held_out import splits_held_out
from transformer.data.pairs import SPLITS, Pair, canonical
from transformer.data.parallel.corpus import SIDES, Corpus, encode_corpora
from transformer.data.parallel.sources import open_source
from transformer.data.parallel.training_pairs import (
    Hashes,
    TrainingPairs,
    fingerprints_of,
    pair_hash,
    read_training_pairs,
    undirected,
)
from transformer.inference.explanations import lens_of
from transformer.inference.segments import measure_lines, source_language
from transformer.inference.translator import Translator
from transformer.tasks.base import plan_summary, refuse_empty

PREVIEW = 3  # number of training pairs in the preview
WORD_TOKENIZER = "word"  # a word tokenizer needs no symbols, since each tag is a word

Pairs = Mapping[str, Iterable[Pair]]


def read_text(
    data: ConfigDict,
    tokenizer: ConfigDict,
    folder: Path | None,
    initial: Path | None = None,
    earlier: Hashes | None = None,
    with_links: bool = False,
) -> tuple[Mapping[str, Iterable[Pair]], Corpus]:
    """Returns the pairs of each split of `config.data`, and the tokenised training corpus.

    With several corpora, a split concatenates the pairs of all corpora. The pairs of each corpus
    also form a split of their own, which is named by `data.corpora.part_name`.

    Pairs in the validation or test set of any corpus are dropped from all training sets, in both
    directions.

    Args:
      tokenizer: `config.tokenizer`.
      folder: a run's folder, whose tokenizers are reused if trained on the same corpus.
      initial: folder of the run that provides the initial tokenizers, or None.
      earlier: hashes of earlier runs' training pairs, or None. They are never held out from files.
      with_links: whether the word links of the training pairs are encoded.
    """
    encode = functools.partial(encode_corpora, initial=initial, with_links=with_links)
    corpora = corpora_of(data)
    if not corpora:
        pairs = _open(data, earlier)
        text = read_training_pairs(pairs["train"], data, _scored(pairs), earlier)
        return pairs, encode([text], data, tokenizer, folder)
    opened: dict[str, Mapping[str, Iterable[Pair]]] = {}
    for corpus in corpora:
        # Corpora with the same data, such as both directions, share one opened source.
        same = (other.name for other in corpora if other.data == corpus.data)
        with naming(corpus):
            first = next(same)
            opened[corpus.name] = opened[first] if first in opened else _open(corpus.data, earlier)
    scored = (pair for s in opened.values() for pair in itertools.chain(*_scored(s).values()))
    hashes = np.fromiter((pair_hash(*pair[:2]) for pair in scored), np.uint64)
    held_out = undirected(hashes)
    texts = []
    for corpus in corpora:
        with naming(corpus):
            splits = opened[corpus.name]
            text = read_training_pairs(splits["train"], corpus.data, _scored(splits), earlier)
            texts.append(_not_held_out(text, corpus, held_out))
    symbols = () if tokenizer.kind == WORD_TOKENIZER else symbols_of(data)
    joined: dict[str, Iterable[Pair]] = {}
    for split in next(iter(opened.values())):
        parts = [_oriented(opened[corpus.name][split], corpus) for corpus in corpora]
        names = (part_name(split, corpus.name) for corpus in corpora)
        joined |= zip(names, parts, strict=True)
        joined[split] = Restartable(lambda parts=parts: itertools.chain(*parts))
    return joined, encode(texts, data, tokenizer, folder, symbols)


def _open(data: ConfigDict, earlier: Hashes | None) -> Mapping[str, Iterable[Pair]]:
    """Returns the splits of a source; validation and test sets are canonicalised and nonempty."""
    pairs = {
        split: part if split == "train" else [*map(canonical, part)]
        for split, part in open_source(data, earlier).items()
    }
    refuse_empty(_scored(pairs))
    return pairs


def _scored(splits: Mapping[str, Iterable[Pair]]) -> dict[str, Iterable[Pair]]:
    return {split: splits[split] for split in SPLITS[1:]}


def _not_held_out(text: TrainingPairs, corpus: CorpusSettings, held_out: Hashes) -> TrainingPairs:
    """Removes held-out pairs from training pairs, and applies the corpus's direction and tag."""
    unread = np.isin(undirected(text.hashes), held_out)
    pairs = _oriented(Restartable(lambda: itertools.compress(text.cleaned, ~unread)), corpus)
    report = text.report.without(held_out=int(unread.sum()))
    check_kept(report)
    reports = {
        part_name(split, corpus.name): part._replace(repeated=0)
        for split, part in text.held_out.items()
    }
    fingerprints = fingerprints_of(pairs)
    return TrainingPairs(pairs, report, fingerprints, reports, text.hashes[~unread])


def _oriented(pairs: Iterable[Pair], corpus: CorpusSettings) -> Iterable[Pair]:
    """Returns a corpus's pairs, swapped if `reverse` is set, with the corpus tag prepended."""

    def orient(pair: Pair) -> Pair:
        source, target, links, further = pair
        if corpus.reverse:
            source, target = target, source
            links = links and tuple(sorted((j, i) for i, j in links))
        if corpus.tag:
            words = len(corpus.tag.split())
            source = f"{corpus.tag} {source}"
            links = links and tuple((i + words, j) for i, j in links)
        return Pair(source, target, links, further)

    return Restartable(lambda: map(orient, pairs))


# -- description and statistics


def describe_pairs(data: ConfigDict, pairs: Pairs, corpus: Corpus, plan: BatchPlan) -> list[str]:
    """Returns the lines of `Task.notes` about the sentence pairs.

    The lines report how many pairs of each corpus were kept by cleaning or were held out before it,
    the problems of each held-out split, and the sampling of training pairs.
    """
    if corpora := corpora_of(data):
        total = sum(plan.drawn)
        kept = [
            f"{each.name}: {report}{_held_out_before(each.data, pairs, each.name)}; {drawn:,} of "
            f"the {total:,} pairs of an epoch ({drawn / total:.1%})"
            for each, report, drawn in zip(corpora, corpus.reports, plan.drawn, strict=True)
        ]
    else:
        kept = [f"{corpus.report}{_held_out_before(data, pairs, '')}"]
    lines = [line for split, part in corpus.held_out.items() for line in part.describe(split)]
    if corpus.sampler is not None:
        tokens = sum(len(store.tokens) for store in (corpus.source, corpus.target))
        growth = corpus.sampler.drawn.sum() / corpus.sampler.planned_draws / tokens
        drawn = f"each epoch draws what it reads of a pair, with {growth:.2f} times as many tokens"
        lines.append(drawn)
    if corpus.links is not None:
        count = corpus.notes["linked"]
        lines.append(f"{count:,} of {corpus.report.kept:,} training pairs have word links")
    return [*kept, *lines]


def summary(
    config: ConfigDict, pairs: Pairs, corpus: Corpus, plan: BatchPlan, splits: Sequence[str]
) -> dict[str, Any]:
    """Returns the statistics for `Task.data_summary` with the given splits."""
    names = [name for split in splits for name in (split, *parts_of(config.data, split))]
    counts = {"train": corpus.report.kept, **{name: len(list(pairs[name])) for name in names}}
    faults = {split: report.counts() for split, report in corpus.held_out.items()}
    tokenizers = corpus.source_tokenizer, corpus.target_tokenizer
    sizes = {side: t.vocab_size for side, t in zip(SIDES, tokenizers, strict=True)}
    joint, trained = config.tokenizer.joint, parts_of(config.data, "train")
    corpora = {
        each.name: {**report.summary(), "drawn": drawn}
        for each, report, drawn in zip(
            corpora_of(config.data), corpus.reports, plan.drawn, strict=False
        )
    }
    return {
        "splits": {
            split: {"sentence pairs": count, **faults.get(split, {})}
            for split, count in counts.items()
        },
        "cleaning": corpus.report.summary(),
        **({"corpora": corpora} if corpora else {}),
        "oov_rate": corpus.unknown_fraction,
        "vocabulary": {"source and target": sizes["source"]} if joint else sizes,
        **plan_summary(plan),
        "preview": [
            {
                side: " ".join(tokenizer.pieces(tokenizer.encode([getattr(pair, side)])[0]))
                for side, tokenizer in zip(SIDES, tokenizers, strict=True)
            }
            for part in trained
            for pair in itertools.islice(pairs[part], -(-PREVIEW // len(trained)))
        ],
        "source_lines": measure_lines(
            corpus.source,
            corpus.source_tokenizer.decode,
            source_language(config.decode, config.data),
        ),
    }


def _held_out_before(data: ConfigDict, pairs: Pairs, name: str) -> str:
    counts = [
        f"{len(list(pairs[part_name(split, name) if name else split])):,} for {split}"
        for split in splits_held_out(data)
    ]
    return f"; held out before: {', '.join(counts)}" if counts else ""


# -- attention snapshots


def snapshot_of_pairs(
    translator: Translator, pairs: Sequence[Pair], config: ConfigDict, longest: int
) -> HeadSnapshots:
    """Returns attention snapshots of the pairs that have fewer than `longest` tokens per side."""
    sources, targets = translator.encode_pairs(pairs)
    lengths = [max(map(len, sides)) + 1 for sides in zip(sources, targets, strict=True)]
    first, model = config.evaluate.snapshot_sentences, config.model
    maps = model.num_heads * (model.num_encoder_layers + 2 * model.num_decoder_layers)
    parts = divide(lengths, longest, first, maps, config.data.batch_tokens)
    batches = [
        translator.make_batch(
            [sources[i] for i in texts], [targets[i] for i in texts], parts.rows, parts.length
        )
        for texts in parts.texts
    ]
    numbers = [i for texts in parts.texts for i in texts]
    written = translator.target_tokenizer.pieces
    tokens = [(translator.source_names(sources[i]), ["<s>", *written(targets[i])]) for i in numbers]
    chosen, first = [pairs[i] for i in numbers], min(first, len(numbers))  # excludes padding rows
    linked: list[LinkedPair] = []
    if chosen and all(pair.alignment is not None for pair in chosen):
        tokenizers = translator.source_tokenizer, translator.target_tokenizer
        chosen = translator.read_pairs(chosen)
        words = []
        for side, tokenizer in zip(SIDES, tokenizers, strict=True):
            texts = [getattr(pair, side) for pair in chosen]
            words.append(map(words_of_text, map(word_ends, texts), tokenizer.starts(texts)))
        gold = (GoldLinks(pair.alignment or ()) for pair in chosen)
        linked += map(LinkedPair, *words, gold)
    lens = lens_of(translator, config.evaluate)
    return HeadSnapshots(translator.batch_attention, batches, tokens[:first], linked, lens)
