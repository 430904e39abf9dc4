"""The text of a translation task: its description, its statistics, and pairs for snapshots."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from transformer.analysis.alignment import GoldLinks, words_of_text
from transformer.analysis.snapshots import HeadSnapshots, LinkedPair, divide
from transformer.data.batches import BatchPlan
from transformer.data.characters import word_ends
from transformer.data.corpora import corpora_of, part_name, parts_of
from transformer.data.files.rows import listed
from transformer.data.held_out import splits_held_out
from transformer.data.pairs import Pair
from transformer.data.parallel.corpus import SIDES, Corpus
from transformer.inference.segments import measure_lines, source_language
from transformer.inference.translator import Translator
from transformer.tasks.base import describe_plan, plan_summary

PREVIEW = 3  # training pairs

Pairs = Mapping[str, Iterable[Pair]]


def describe(config: ConfigDict, pairs: Pairs, corpus: Corpus, plan: BatchPlan) -> list[str]:
    """Returns the lines of `Task.describe`; pairs are by split, of several corpora also by part."""
    lines = [
        *_kept(config.data, pairs, corpus, plan),
        *(line for split, own in corpus.held_out.items() for line in own.describe(split)),
        f"{corpus.unknown_fraction:.3%} unknown tokens; vocabularies: "
        f"{corpus.source_tokenizer.vocab_size} source, "
        f"{corpus.target_tokenizer.vocab_size} target"
        + (" (the same)" if config.tokenizer.joint else "")
        + _symbols(corpus),
        *corpus.describe_unknown(),
        *describe_draws(corpus),
        describe_plan(plan),
    ]
    for example in _preview(config.data, pairs, corpus):
        lines += [f"  {example['source']}", f"  -> {example['target']}"]
    return lines


def summary(
    config: ConfigDict, pairs: Pairs, corpus: Corpus, plan: BatchPlan, splits: Sequence[str]
) -> dict[str, Any]:
    """Returns the statistics of `Task.data_summary`, with these splits."""
    names = [name for split in splits for name in (split, *parts_of(config.data, split))]
    counts = {"train": corpus.report.kept, **{name: len(list(pairs[name])) for name in names}}
    faults = {split: report.counts() for split, report in corpus.held_out.items()}
    tokenizers = corpus.source_tokenizer, corpus.target_tokenizer
    sizes = {side: t.vocab_size for side, t in zip(SIDES, tokenizers, strict=True)}
    joint = config.tokenizer.joint
    return {
        "splits": {
            split: {"sentence pairs": count, **faults.get(split, {})}
            for split, count in counts.items()
        },
        "cleaning": {
            "read": corpus.report.total,
            "kept": corpus.report.kept,
            "dropped": corpus.report.dropped,
        },
        **_corpora(config.data, corpus, plan),
        "oov_rate": corpus.unknown_fraction,
        "vocabulary": {"source and target": sizes["source"]} if joint else sizes,
        **plan_summary(plan),
        "preview": _preview(config.data, pairs, corpus),
        "source_lines": measure_lines(
            corpus.source,
            corpus.source_tokenizer.decode,
            source_language(config.decode, config.data),
        ),
    }


def _corpora(data: ConfigDict, corpus: Corpus, plan: BatchPlan) -> dict[str, Any]:
    """The statistics of each of several corpora."""
    found = {
        own.name: {
            "read": report.total,
            "kept": report.kept,
            "dropped": report.dropped,
            "drawn": drawn,
        }
        for own, report, drawn in zip(corpora_of(data), corpus.reports, plan.drawn, strict=False)
    }
    return {"corpora": found} if found else {}


def _kept(data: ConfigDict, pairs: Pairs, corpus: Corpus, plan: BatchPlan) -> list[str]:
    """The numbers of pairs that cleaning kept, that were held out before, and that are drawn."""
    corpora = corpora_of(data)
    if not corpora:
        return [f"{corpus.report}{_held_out_before(data, pairs, '')}"]
    total = sum(plan.drawn)
    return [
        f"{own.name}: {report}{_held_out_before(own.data, pairs, own.name)}; {drawn:,} of the "
        f"{total:,} pairs of an epoch ({drawn / total:.1%})"
        for own, report, drawn in zip(corpora, corpus.reports, plan.drawn, strict=True)
    ]


def _symbols(corpus: Corpus) -> str:
    symbols = corpus.source_tokenizer.symbols
    return f"; symbols: {listed(map(repr, symbols))}" if symbols else ""


def describe_draws(corpus: Corpus) -> list[str]:
    """Returns lines on what is drawn of each pair; none if it is always the same."""
    if corpus.sampler is None:
        return []
    tokens = sum(len(store.tokens) for store in (corpus.source, corpus.target))
    growth = corpus.sampler.drawn.sum() / corpus.sampler.planned_draws / tokens
    changes = ", ".join(f"{fraction:.1%} {name}" for name, fraction in corpus.modified.items())
    return [
        f"each epoch draws what it reads of a pair, with {growth:.2f} times as many tokens"
        + (f"; modified: {changes}" if changes else ""),
        *(
            f"data.augment_{name} changed no pair: there is nothing to change, or pairs would be "
            "too long or have unknown tokens"
            for name, fraction in corpus.modified.items()
            if not fraction
        ),
    ]


def _held_out_before(data: ConfigDict, pairs: Pairs, name: str) -> str:
    counts = [
        f"{len(list(pairs[part_name(split, name) if name else split])):,} for {split}"
        for split in splits_held_out(data)
    ]
    return f"; held out before: {', '.join(counts)}" if counts else ""


def _preview(data: ConfigDict, pairs: Pairs, corpus: Corpus) -> list[Mapping[str, str]]:
    """The first training pairs as tokens, of each corpus if there are several."""
    parts = parts_of(data, "train")
    most = -(-PREVIEW // len(parts))
    tokenizers = corpus.source_tokenizer, corpus.target_tokenizer
    return [
        {
            side: " ".join(tokenizer.pieces(tokenizer.encode([getattr(pair, side)])[0]))
            for side, tokenizer in zip(SIDES, tokenizers, strict=True)
        }
        for part in parts
        for pair in itertools.islice(pairs[part], most)
    ]


# -- attention snapshots


def snapshot_of_pairs(
    translator: Translator, pairs: Sequence[Pair], config: ConfigDict, longest: int
) -> HeadSnapshots:
    """Returns the snapshot of pairs, without those with a side of `longest` tokens or more."""
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
    chosen = [pairs[i] for i in numbers]
    first = min(first, len(chosen))  # and no rows of padding
    linked = [] if any(pair.alignment is None for pair in chosen) else _linked(translator, chosen)
    return HeadSnapshots(translator.batch_attention, batches, tokens[:first], linked)


def _linked(translator: Translator, pairs: Sequence[Pair]) -> list[LinkedPair]:
    """The words of pairs, and their gold links."""
    pairs = translator.read_pairs(pairs)
    sides = (
        map(words_of_text, map(word_ends, texts), tokenizer.starts(texts))
        for tokenizer, texts in (
            (translator.source_tokenizer, [pair.source for pair in pairs]),
            (translator.target_tokenizer, [pair.target for pair in pairs]),
        )
    )
    gold = (GoldLinks(pair.alignment or ()) for pair in pairs)
    return list(map(LinkedPair, *sides, gold))
