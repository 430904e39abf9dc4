"""From pairs of sentences to tokens: cleaning, tokenizers, encoding."""

import collections
import dataclasses
import functools
import hashlib
import itertools
import logging
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import UInt64
from ml_collections import ConfigDict

from transformer.data.cleaning.rules import SHORT_SENTENCE, CleaningReport, check_kept
from transformer.data.cleaning.survey import undirected
from transformer.data.corpora import texts_of
from transformer.data.encode import (
    Encoded,
    EncodedPart,
    Restartable,
    Side,
    batched,
    encode_training_text,
    make_tokenizer,
)
from transformer.data.pairs import Pair
from transformer.data.parallel.batches import PairSampler, make_sampler
from transformer.data.parallel.modifiers import LETTER_CASES, Augmentation, augmentation_of
from transformer.data.parallel.training_pairs import (
    Hashes,
    HeldOutReport,
    TrainingPairs,
    read_training_pairs,
)
from transformer.data.token_store import TokenStore
from transformer.data.tokenizer import Tokenizer, symbol_fault
from transformer.data.tokenizer.draws import make_generator, sampling_key
from transformer.data.tokenizer.train import spells_in_bytes

ENCODE_AT_ONCE = 20_000  # pairs
SIDES = ("source", "target")
TOKEN_LIMITS = ("too_many_tokens", "token_ratio")  # fields of `CleaningReport`
TAGS_SHOWN = 20_000  # pairs that show whether there are tags
TAG = re.compile(r"</?[A-Za-z][^<>]*>|&lt;/?[A-Za-z]\w*/?&gt;|\{/?\w+/?\}")  # and placeholders
RARE, NAMED = 0.001, 10  # fraction of pairs that is no warning; tags that it names
logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Corpus(Encoded):
    """Training text, cleaned and encoded, with its tokenizers and the report of cleaning.

    Attributes:
      reports: of each of several corpora, whose pairs follow one another.
      held_out: the reports on the other splits.
      hashes: of the pairs before limits in tokens drop some, the same in both directions.
      sampler: draws what is read of each pair; None if it is always the same.
      modified: by modifier, the fraction of the pairs that it changes.
    """

    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    reports: tuple[CleaningReport, ...]
    held_out: Mapping[str, HeldOutReport]
    hashes: UInt64[np.ndarray, "pairs"]
    sampler: PairSampler | None = None
    modified: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def source(self) -> TokenStore:
        """The encoded sources."""
        return self.side("source")

    @property
    def target(self) -> TokenStore:
        """The encoded targets."""
        return self.side("target")

    @property
    def report(self) -> CleaningReport:
        """The report of all corpora together."""
        return functools.reduce(CleaningReport.add, self.reports)


def tokenizer_names(joint: bool) -> tuple[str, ...]:
    """Returns the files of a run's tokenizers, the source's first."""
    return ("tokenizer.model",) if joint else ("tokenizer.source.model", "tokenizer.target.model")


def prepare_corpus(
    pairs: Iterable[Pair],
    data: ConfigDict,
    settings: ConfigDict,
    folder: Path | None = None,
    held_out: Mapping[str, Iterable[Pair]] | None = None,
    initial: Path | None = None,
    earlier: Hashes | None = None,
) -> Corpus:
    """Returns one corpus, see `read_training_pairs` and `encode_corpora`."""
    text = read_training_pairs(pairs, data, held_out or {}, earlier)
    return encode_corpora([text], data, settings, folder, initial=initial)


def encode_corpora(
    corpora: Sequence[TrainingPairs],
    data: ConfigDict,
    settings: ConfigDict,
    folder: Path | None = None,
    symbols: Sequence[str] = (),
    initial: Path | None = None,
) -> Corpus:
    """Returns the training pairs of one or several corpora as tokens, one corpus after another.

    Args:
      folder: a run's folder, whose tokenizers are used if they were trained on this text.
      symbols: strings of sources that are always one token.
      initial: folder of the run whose tokenizers are kept or grow, if any.
    """
    fingerprints = list(corpora[0].fingerprints)
    if len(corpora) > 1:
        joined = map("".join, zip(*(corpus.fingerprints for corpus in corpora), strict=True))
        fingerprints = [hashlib.sha256(each.encode()).hexdigest() for each in joined]
    augmentation = augmentation_of(data, (*settings.symbols, *symbols))
    tokenizers = _tokenizers(
        corpora, fingerprints, augmentation, data, settings, folder, symbols, initial
    )
    limits = [(own.max_tokens, own.max_token_ratio) for own in texts_of(data)]
    sampled = bool(sampling_key(settings) or augmentation.key)
    encoded = encode_training_text(
        _parts(corpora, limits, tokenizers),
        dict(zip(SIDES, tokenizers, strict=True)),
        ("pairs", *fingerprints, *(corpus.report.kept for corpus in corpora), *limits),
        data,
        settings,
        initial,
        with_texts=sampled,
    )
    sampler, modified = None, {}
    if sampled:
        longest = max(max_tokens for max_tokens, _ in limits)
        sampler, modified = make_sampler(encoded, tokenizers, augmentation, longest, data, settings)
    reports = tuple(
        corpus.report.without(**{name: encoded.notes[f"{number} {name}"] for name in TOKEN_LIMITS})
        for number, corpus in enumerate(corpora)
    )
    for report in reports:
        check_kept(report)
    return Corpus(
        **vars(encoded),
        source_tokenizer=tokenizers[0],
        target_tokenizer=tokenizers[1],
        reports=reports,
        held_out=dict(itertools.chain(*(corpus.held_out.items() for corpus in corpora))),
        hashes=undirected(np.concatenate([corpus.hashes for corpus in corpora])),
        sampler=sampler,
        modified=modified,
    )


def _tokenizers(
    corpora: Sequence[TrainingPairs],
    fingerprints: Sequence[str],
    augmentation: Augmentation,
    data: ConfigDict,
    settings: ConfigDict,
    folder: Path | None,
    symbols: Sequence[str],
    initial: Path | None,
) -> list[Tokenizer]:
    """The tokenizers of source and target, see `encode_corpora`."""
    pairs = Restartable(lambda: itertools.chain(*(corpus.cleaned for corpus in corpora)))
    warn_of_tags(itertools.islice(pairs, TAGS_SHOWN), augmentation.symbols)
    count = sum(corpus.report.kept for corpus in corpora)
    modified = augmentation
    if spells_in_bytes(settings):  # names take no subwords from the text
        of_case = {k: v for k, v in augmentation.fractions.items() if k in LETTER_CASES}
        modified = augmentation._replace(fractions=of_case)
    tokenizers: list[Tokenizer] = []
    for number, name in enumerate(tokenizer_names(settings.joint)):
        sides = (0, 1) if settings.joint else (number,)
        tokenizer = make_tokenizer(
            Restartable(
                lambda sides=sides: (
                    pair[:2][side] for pair in _modified(pairs, modified) for side in sides
                )
            ),
            "".join((*(fingerprints[side] for side in sides), *map(str, modified.key))),
            data,
            settings,
            model=(settings.model, settings.target_model)[number],
            symbols=symbols if 0 in sides else (),
            saved=folder and _file(folder, name),
            initial=initial and _file(initial, name),
            count=count * len(sides),
            reads=tuple(side == 0 for side in sides),
        )
        tokenizers += [tokenizer.writer() if side else tokenizer for side in sides]
    return tokenizers


def warn_of_tags(pairs: Iterable[Pair], symbols: Collection[str]) -> None:
    """Logs how many pairs have tags that are not among the symbols, and the key that adds them."""
    tags = [{*TAG.findall(f"{pair.source} {pair.target}")} - {*symbols} for pair in pairs]
    count, counts = sum(map(bool, tags)), collections.Counter(itertools.chain(*tags))
    names = sorted(counts, key=lambda tag: (-counts[tag], tag))
    unfit = [name for name in names if symbol_fault(name) or "," in name]
    fit = ",".join([name for name in names if name not in unfit][:NAMED])
    keep = f"--config.tokenizer.symbols={shlex.quote(fit)} keeps each whole" * bool(fit)
    drop = f"remove {' '.join(unfit[:NAMED])}, which cannot be symbols" * bool(unfit)
    if count > RARE * len(tags):
        logger.warning(
            f"warning: {count:,} of the first {len(tags):,} pairs have tags such as {names[0]}, "
            f"which are split: {'; '.join(filter(None, (keep, drop)))}"
        )


def _file(folder: Path, name: str) -> Path:
    """The file of a run's tokenizer; both sides have one file if their tokenizers are equal."""
    return folder / (name if (folder / name).exists() else tokenizer_names(True)[0])


def _modified(pairs: Iterable[Pair], augmentation: Augmentation) -> Iterator[Pair]:
    """The pairs as tokenizers are trained on them, so that words in capitals get subwords."""
    random = make_generator("tokenizer")
    for pair in pairs:
        yield augmentation.draw(lambda pair=pair: [pair], random)[1] or pair


def _parts(
    corpora: Sequence[TrainingPairs],
    limits: Sequence[tuple[int, float]],
    tokenizers: Sequence[Tokenizer],
) -> Iterator[EncodedPart]:
    """The pairs of all corpora within the limits of each; others are counted by corpus and name."""
    for number, (corpus, (max_tokens, max_ratio)) in enumerate(zip(corpora, limits, strict=True)):
        for chunk in batched(corpus.cleaned, ENCODE_AT_ONCE):
            texts = [[pair.source for pair in chunk], [pair.target for pair in chunk]]
            ids = [tokenizer.encode(own) for tokenizer, own in zip(tokenizers, texts, strict=True)]
            counts = np.array([[*map(len, side)] for side in ids])
            short = counts.max(axis=0) + 1 <= max_tokens
            counts += SHORT_SENTENCE
            balanced = counts.max(axis=0) <= (max_ratio or np.inf) * counts.min(axis=0)
            marks = (short & balanced).tolist()
            sides = {
                name: Side([*itertools.compress(own, marks)], [*itertools.compress(lines, marks)])
                for name, own, lines in zip(SIDES, ids, texts, strict=True)
            }
            dropped = int((~short).sum()), int((short & ~balanced).sum())
            names = (f"{number} {name}" for name in TOKEN_LIMITS)
            yield EncodedPart(sides, counts=dict(zip(names, dropped, strict=True)))
