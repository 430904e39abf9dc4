"""The task-specific sections of a report: a run's sample outputs and worst outputs."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import jax
import numpy as np
import sacrebleu
from ml_collections import ConfigDict

from transformer.data.pairs import Pair
from transformer.data.tokenizer import UNK_ID
from transformer.decoding.search import PENALTIES
from transformer.model.build import has_cross_attention
from transformer.runs.run import TrainedRun
from ..display.labels import visible
from ..display.web_page import paragraphs, shortened
from ..process.modes import HOST, PORT
from .table import Table
from .tasks import read_rows, read_translations

SAMPLES, WORST, ERRORS, MISTAKES = 5, 6, 3, 10  # numbers of texts shown
MAX_TEXT_LENGTH = 600  # maximum number of characters shown per text
MAX_DRAWN_TOKENS = 48  # maximum number of tokens per side of an attention map
MIN_TOKENS = 5  # minimum number of tokens in a segment for a meaningful perplexity
EXACT, SEARCH, MODEL = "exact", "search", "model"
# A reference must outscore a translation by more than this margin (relative and absolute). Saved
# scores have four decimals, and the rounding errors of the search differ from those of rescoring.
LEAD = 1e-3


class AttentionMap(NamedTuple):
    """Attention weights from 0 to 1, with a row per output token and a column per source token."""

    rows: list[str]
    columns: list[str]
    weights: list[list[float]]


class Excerpt(NamedTuple):
    """A text and the model's output for this text, as lines keyed by name."""

    title: str
    lines: dict[str, str]
    attention: AttentionMap | None = None
    beam: str = ""  # address of the search for the translation on the page of `serve`


class Group(NamedTuple):
    """A section of a report: notes, tables, and examples."""

    name: str
    title: str
    notes: Sequence[str] = ()
    tables: Sequence[Table] = ()
    examples: Sequence[Excerpt] = ()


class Sentence(NamedTuple):
    """A source sentence of an evaluation split, with its reference and its translation."""

    line: int  # line number, from one
    source: str
    reference: str  # the most similar one, if there are several
    translation: str
    chrf: float  # of the translation, from 0 to 100
    log_prob: float  # of the translation, in nats
    tokens: int  # of the translation including end-of-sentence; 0 for a blank line


class Judged(NamedTuple):
    """A sentence, the search scores of its translation and reference, and the kind of error."""

    sentence: Sentence
    translation: float
    reference: float
    kind: str


def translations(
    decode: ConfigDict, folder: Path, split: str, trained: TrainedRun | None, missing: str
) -> list[Group]:
    """Returns samples, search and model errors, and the worst translations.

    Args:
      decode: the `config.decode` with which the run's translations were generated.
      trained: the model that was scored, or None if it is not available.
      missing: a message that explains why the model is not available.
    """
    sentences = read_sentences(folder, split)
    spread = _spread(sentences)
    maps, notes = [None] * len(spread), [f"Attention is not drawn: {missing}"]
    if trained:
        sides = [each.source for each in spread], [each.translation for each in spread]
        maps, notes = cross_attention(trained, *sides), []
    if any(maps):
        notes.append(
            "Next to each sentence: its cross-attention, the mean over the heads of the last "
            "layer. Each row is a written token, and shows the attention while it is written; "
            "each column is a source token. Stronger colour is more weight."
        )
    samples = [_pair(each, "", weights) for each, weights in zip(spread, maps, strict=True)]
    lowest = sorted(sentences, key=lambda each: each.chrf)[:WORST]
    wrong = [each for each in lowest if each.translation != each.reference]
    worst = [_pair(each, f": chrF {each.chrf:.1f}") for each in wrong]
    note = "The lowest chrF (Popović 2015) of a sentence against its reference."
    return [
        Group("samples", f"Sample translations of the {split} set", notes, [], samples),
        _errors(decode, sentences, trained, missing),
        Group("worst", "The worst translations", [note], [], worst),
    ]


def _spread(items: Sequence) -> Sequence:
    """Returns `SAMPLES` items, evenly spaced."""
    return items[:: max(1, len(items) // SAMPLES)][:SAMPLES]


def _pair(sentence: Sentence, about: str, attention: AttentionMap | None = None) -> Excerpt:
    texts = {n: getattr(sentence, n) for n in ("source", "reference", "translation")}
    return _example(f"Sentence {sentence.line}{about}", texts, attention)


def _example(title: str, texts: dict[str, str], attention: AttentionMap | None = None) -> Excerpt:
    lines = {name: shortened(text, MAX_TEXT_LENGTH) for name, text in texts.items()}
    return Excerpt(title, lines, attention)


def _errors(
    decode: ConfigDict, sentences: Sequence[Sentence], trained: TrainedRun | None, missing: str
) -> Group:
    """Returns the report section on search errors and model errors."""
    title = "Search errors and model errors"
    if trained is None:
        return Group("errors", title, [f"References are not scored: {missing}"])
    judged = judge(trained, sentences, decode)
    omitted = len(sentences) - len(judged)
    notes = paragraphs("errors.txt", decode=decode, lead=LEAD, omitted=omitted)
    kinds = {
        EXACT: "translation equals the reference, token for token",
        SEARCH: "search error",
        MODEL: "model error",
    }
    counts = {name: sum(each.kind == kind for each in judged) for kind, name in kinds.items()}
    rows = [[name, f"{n:,}", f"{n / max(1, len(judged)):.1%}"] for name, n in counts.items()]
    table = Table("Outcome per sentence", ["", "sentences", "fraction"], rows)
    examples = [*_error_examples(judged, SEARCH), *_error_examples(judged, MODEL)]
    return Group("errors", title, notes, [table], examples)


def _error_examples(judged: Sequence[Judged], kind: str) -> list[Excerpt]:
    """Returns the errors of a kind with the largest score differences."""
    errors = [each for each in judged if each.kind == kind]
    errors.sort(key=lambda each: -abs(each.reference - each.translation))
    about = ", {0.kind} error: reference {0.reference:.3f}, translation {0.translation:.3f}"
    excerpts = []
    for each in errors[:ERRORS]:
        view = {"text": each.sentence.source, "tab": "beam", "why": each.sentence.reference}
        excerpt = _pair(each.sentence, about.format(each))
        excerpts.append(excerpt._replace(beam=f"http://{HOST}:{PORT}/#{urlencode(view)}"))
    return excerpts


def likelihoods(
    decode: ConfigDict, folder: Path, split: str, trained: TrainedRun | None, missing: str
) -> list[Group]:
    """Returns a language model's sample and the text it predicts worst; see `translations`."""
    notes, written = [f"Nothing is written: {missing}"], []
    if trained:
        text = "".join(trained.predictor.stream(trained.variables, ""))
        written = [Excerpt("Sample", {"text": text})]
        notes = [
            f"Drawn with seed {decode.seed}, temperature {decode.temperature}, top_k "
            f"{decode.top_k} and top_p {decode.top_p}, after an empty prompt."
        ]
    samples = Group("samples", "A text that it writes", notes, [], written)
    title, name = "The text it predicts worst", f"likelihoods/{split}.tsv"
    pieces = [
        (math.exp(min(-float(log_prob) / int(tokens), 700)), tokens, number, text)
        for number, (log_prob, tokens, _, text) in enumerate(read_rows(folder / name), 1)
        if int(tokens) >= MIN_TOKENS
    ]
    notes = [
        f"Perplexity of {len(pieces):,} pieces of the {split} text, each read without what was "
        f"before it: documents, or parts as long as a row, of at least {MIN_TOKENS} tokens.",
    ]
    examples = [
        _example(f"Piece {n}: perplexity {perplexity:,.2f} over {tokens} tokens", {"text": text})
        for perplexity, tokens, n, text in sorted(pieces, reverse=True)[:WORST]
    ]
    return [samples, Group("worst", title, notes, [], examples)]


def predictions(
    decode: ConfigDict, folder: Path, split: str, trained: TrainedRun | None, missing: str
) -> list[Group]:
    """Returns samples and the most confident mistakes of a classifier; see `translations`."""
    numbered = [*enumerate(read_rows(folder / f"predictions/{split}.tsv"), 1)]
    wrong = [(-float(row[2]), number, row) for number, row in numbered if row[0] != row[1]]

    def example(number: int, row: Sequence[str]) -> Excerpt:
        label, predicted, probability, text = row
        title = f"Text {number}: probability {float(probability):.3f}"
        return _example(title, {"text": text, "class": label, "predicted": predicted})

    notes = [f"{len(wrong):,} of {len(numbered):,} texts are taken for another class."]
    notes += ["The errors with the highest probability:"] * bool(wrong)
    samples = [example(*each) for each in _spread(numbered)]
    mistakes = [example(number, row) for _, number, row in sorted(wrong)[:MISTAKES]]
    return [
        Group("samples", f"Sample texts of the {split} set", [], [], samples),
        Group("worst", "The most confident mistakes", notes, [], mistakes),
    ]


# Functions keyed by `TaskMeasures.made`.
REGISTRY: dict[str, Callable[..., list[Group]]] = {
    "translations": translations,
    "likelihoods": likelihoods,
    "predictions": predictions,
}


# -- search errors and model errors


def read_sentences(folder: Path, split: str) -> list[Sentence]:
    """Returns the sentences of a split, and a run's translations of the sentences."""
    sides, _, outputs = read_translations(folder, None, split)
    rows = read_rows(folder / f"translations/{split}.scores.tsv")
    numbers = [(float(log_prob), int(tokens)) for log_prob, tokens in rows]
    texts = zip(numbers, outputs, *sides.values(), strict=True)
    metric, sentences = sacrebleu.CHRF(), []
    for n, (score, text, source, first, *more) in enumerate(texts, 1):
        references = [first, *filter(None, more)]  # a missing reference is an empty line
        chrfs = {each: metric.sentence_score(text, [each]).score for each in references}
        best = max(references, key=chrfs.__getitem__)
        sentences.append(Sentence(n, source, best, text, chrfs[best], *score))
    return sentences


def judge(trained: TrainedRun, sentences: Sequence[Sentence], decode: ConfigDict) -> list[Judged]:
    """Returns the sentences that can be judged, each with the kind of error of its translation.

    A translation that equals its reference is `EXACT`. Otherwise, it is a `SEARCH` error if the
    reference scores higher by more than rounding error, since the search should have preferred the
    reference, or else a `MODEL` error. Search errors that the reference does not reveal are not
    counted. Sentences are omitted if the search cannot produce the reference: the source or the
    reference exceeds the maximum length, or the reference has an unknown token.

    Source: Stahlberg and Byrne 2019, "On NMT Search Errors and Model Errors: Cat Got Your
    Tongue?", which finds all search errors by exact search.
    """
    predictor = trained.predictor
    _, sources, references, translations, *_ = map(list, zip(*sentences, strict=True))
    read = predictor.source_tokenizer.encode(sources)
    ids, written = map(predictor.target_tokenizer.encode, (references, translations))
    # Longer sources are translated in segments, and each segment has its own score.
    usable = [
        max(len(source), len(target)) < predictor.max_length and UNK_ID not in target
        for source, target in zip(read, ids, strict=True)
    ]
    texts = [text if fits else "" for text, fits in zip(references, usable, strict=True)]
    scores = predictor.score(trained.variables, sources, texts)
    judged = []
    for i, (sentence, score) in enumerate(zip(sentences, scores, strict=True)):
        if usable[i] and sentence.tokens:
            ours = penalised(sentence.log_prob, sentence.tokens, decode)
            theirs = penalised(score[0], score[1], decode)
            kind = SEARCH if theirs - ours > LEAD * max(1.0, abs(ours)) else MODEL
            if ids[i] == written[i] or translations[i] == references[i]:
                kind = EXACT
            judged.append(Judged(sentence, ours, theirs, kind))
    return judged


def penalised(log_prob: float, tokens: int, decode: ConfigDict) -> float:
    """Returns the score that a search maximises: log-probability divided by length penalty."""
    return log_prob / float(PENALTIES[decode.length_penalty](np.float64(tokens), decode.alpha))


# -- attention


def cross_attention(
    trained: TrainedRun, sources: Sequence[str], translations: Sequence[str]
) -> list[AttentionMap | None]:
    """Returns the last layer's cross-attention, averaged over heads, for each sentence pair.

    A map is None if the model has no cross-attention, or if a side has more tokens than
    `MAX_DRAWN_TOKENS` or than the model's maximum length.
    """
    predictor = trained.predictor
    maps: list[AttentionMap | None] = [None] * len(sources)
    length = min(MAX_DRAWN_TOKENS, predictor.max_length)
    read, written = predictor.encode_pairs(map(Pair, sources, translations))
    # The maximum length counts the end-of-sentence token, which the token ids lack.
    drawn = [i for i in range(len(sources)) if max(len(read[i]), len(written[i])) < length]
    if not drawn or not has_cross_attention(predictor.model.config):
        return maps
    texts = [read[i] for i in drawn], [written[i] for i in drawn]
    batch = predictor.make_batch(*texts, len(drawn), length)

    @jax.jit  # the compiled program returns only the mean, not all weights
    def mean_of_last_layer(variables: Any, batch: Any) -> jax.Array:
        return predictor.batch_attention(variables, batch)["cross"].weights[-1].mean(axis=1)

    means = jax.device_get(mean_of_last_layer(trained.variables, batch))
    for mean, i in zip(means, drawn, strict=True):
        rows = [*predictor.target_tokenizer.pieces(written[i]), "</s>"]
        columns = predictor.source_names(read[i])
        weights = mean[: len(rows), : len(columns)].round(2).tolist()
        maps[i] = AttentionMap([*map(visible, rows)], [*map(visible, columns)], weights)
    return maps
