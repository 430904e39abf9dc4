"""Several parallel corpora as one: each with its own source, cleaning, tag and direction."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from transformer.data.cleaning.rules import check_kept
from transformer.data.cleaning.survey import pair_hash, undirected
from transformer.data.corpora import CorpusSettings, corpora_of, naming, part_name, symbols_of
from transformer.data.encode import Restartable
from transformer.data.pairs import SPLITS, Pair, canonical
from transformer.data.parallel.corpus import Corpus, encode_corpora, prepare_corpus
from transformer.data.parallel.sources import open_source
from transformer.data.parallel.training_pairs import (
    Hashes,
    TrainingPairs,
    fingerprints_of,
    read_training_pairs,
)
from transformer.tasks.base import refuse_empty

WORD_TOKENIZER = "word"  # the kind of tokenizer that needs no symbols: a tag is a word


def read_text(
    data: ConfigDict,
    tokenizer: ConfigDict,
    folder: Path | None,
    initial: Path | None = None,
    earlier: Hashes | None = None,
) -> tuple[Mapping[str, Iterable[Pair]], Corpus]:
    """Returns the pairs of each split of `config.data`, and the training text as tokens.

    Of several corpora a split has the pairs of all, one after another, and there are also those of
    each, `data.corpora.parts_of` the split.

    Pairs of the validation or test set of any of several corpora are dropped from the training text
    of all, in both directions.

    Args:
      tokenizer: `config.tokenizer`.
      folder: a run's folder, whose tokenizers are used if they were trained on this text.
      initial: folder of the run whose tokenizers are kept or grow, if any.
      earlier: the pairs that earlier runs were trained on, if any: of files none is held out.
    """
    corpora = corpora_of(data)
    if not corpora:
        pairs = _open(data, earlier)
        scored = _scored(pairs)
        return pairs, prepare_corpus(
            pairs["train"], data, tokenizer, folder, scored, initial, earlier
        )
    opened: dict[str, Mapping[str, Iterable[Pair]]] = {}
    for corpus in corpora:
        # Two directions of one text are read once.
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
            texts.append(_own(text, corpus, held_out))
    symbols = () if tokenizer.kind == WORD_TOKENIZER else symbols_of(data)
    joined = _join(corpora, opened)
    return joined, encode_corpora(texts, data, tokenizer, folder, symbols, initial)


def _join(
    corpora: Sequence[CorpusSettings], opened: Mapping[str, Mapping[str, Iterable[Pair]]]
) -> dict[str, Iterable[Pair]]:
    """The pairs of all corpora and of each, by split."""
    found: dict[str, Iterable[Pair]] = {}
    for split in next(iter(opened.values())):
        parts = [_oriented(opened[corpus.name][split], corpus) for corpus in corpora]
        found |= {part_name(split, c.name): own for c, own in zip(corpora, parts, strict=True)}
        found[split] = Restartable(lambda parts=parts: itertools.chain(*parts))
    return found


def _open(data: ConfigDict, earlier: Hashes | None) -> Mapping[str, Iterable[Pair]]:
    """The splits of a source, of which those that are scored are canonical and not empty."""
    pairs = {
        split: own if split == "train" else [*map(canonical, own)]
        for split, own in open_source(data, earlier).items()
    }
    refuse_empty(_scored(pairs))
    return pairs


def _scored(splits: Mapping[str, Iterable[Pair]]) -> dict[str, Iterable[Pair]]:
    return {split: splits[split] for split in SPLITS[1:]}


def _own(text: TrainingPairs, corpus: CorpusSettings, held_out: Hashes) -> TrainingPairs:
    """A training text without held-out pairs, as the model reads it."""
    unread = np.isin(undirected(text.hashes), held_out)
    pairs = _oriented(Restartable(lambda: itertools.compress(text.cleaned, ~unread)), corpus)
    report = text.report.without(held_out=int(unread.sum()))
    check_kept(report)
    reports = {
        part_name(split, corpus.name): own._replace(repeated=0)
        for split, own in text.held_out.items()
    }
    fingerprints = fingerprints_of(pairs)
    return TrainingPairs(pairs, report, fingerprints, reports, text.hashes[~unread])


def _oriented(pairs: Iterable[Pair], corpus: CorpusSettings) -> Iterable[Pair]:
    """The pairs of a corpus in its direction and with its tag."""
    return Restartable(lambda: (_orient(pair, corpus) for pair in pairs))


def _orient(pair: Pair, corpus: CorpusSettings) -> Pair:
    source, target, links, further = pair
    if corpus.reverse:
        source, target = target, source
        links = links and tuple(sorted((j, i) for i, j in links))
    if corpus.tag:
        words = len(corpus.tag.split())
        source = f"{corpus.tag} {source}"
        links = links and tuple((i + words, j) for i, j in links)
    return Pair(source, target, links, further)
