"""The part of a report that depends on the task: good and bad outputs of a run."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict

from experiments.display.web_page import shortened
from experiments.report import errors
from experiments.report.attention import AttentionMap, cross_attention
from experiments.report.errors import EXACT, LEAD, MODEL, SEARCH, Judged, Sentence, reading
from experiments.results.table import Table
from experiments.results.texts import COLUMNS, read_lines
from transformer.workdir import TrainedRun

SAMPLES, WORST, SLOWEST, ERRORS, MISTAKES = 5, 6, 3, 3, 10  # texts shown
MAX_TEXT_LENGTH = 600  # characters of a text shown
MIN_TOKENS = 5  # of a piece of text whose perplexity says something


class Line(NamedTuple):
    """A line of an example: what it is, and the text."""

    name: str
    text: str


class Example(NamedTuple):
    """A text and the output of the model; `attention` is None if none is shown."""

    title: str
    lines: list[Line]
    attention: AttentionMap | None = None


class Group(NamedTuple):
    """A section of a report: notes, tables, and examples."""

    name: str
    title: str
    notes: Sequence[str] = ()
    tables: Sequence[Table] = ()
    examples: Sequence[Example] = ()


def translations(
    decode: ConfigDict, folder: Path, split: str, trained: TrainedRun | None, missing: str
) -> list[Group]:
    """Returns samples, errors of search and model, and the worst and longest translations.

    Args:
      decode: `config.decode` of the search that found the translations of the run.
      trained: the model whose scores the results are; None if it is not there.
      missing: says how to come by it.
    """
    sentences = errors.read_sentences(folder, split)
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
    samples = [_pair(each, "", own) for each, own in zip(spread, maps, strict=True)]
    chrf = sorted(sentences, key=lambda each: each.chrf)[:WORST]
    worst = [
        _pair(each, f": chrF {each.chrf:.1f}")
        for each in chrf
        if each.translation != each.reference
    ]
    note = "The lowest chrF (Popović 2015) of a sentence against its reference."
    return [
        Group("samples", f"Sample translations of the {split} set", notes, [], samples),
        _errors(decode, sentences, trained, missing),
        Group("worst", "The worst translations", [note], [], worst),
        _longest_translations(sentences),
    ]


def _spread(items: Sequence) -> Sequence:
    """Items evenly over all."""
    return items[:: max(1, len(items) // SAMPLES)][:SAMPLES]


def _pair(sentence: Sentence, about: str, attention: AttentionMap | None = None) -> Example:
    names = ("source", "reference", "translation")
    return _example(
        f"Sentence {sentence.line}{about}",
        {name: getattr(sentence, name) for name in names},
        attention,
    )


def _example(title: str, texts: dict[str, str], attention: AttentionMap | None = None) -> Example:
    lines = [Line(name, shortened(text, MAX_TEXT_LENGTH)) for name, text in texts.items()]
    return Example(title, lines, attention)


def _errors(
    decode: ConfigDict, sentences: Sequence[Sentence], trained: TrainedRun | None, missing: str
) -> Group:
    """Search errors against model errors."""
    title = "Search errors and model errors"
    if not errors.are_scored(sentences):
        missing = "This run did not keep the scores of its translations: --mode=evaluate adds them"
        return Group("errors", title, [missing])
    if trained is None:
        return Group("errors", title, [f"References are not scored: {missing}"])
    references = errors.score_references(trained, sentences)
    judged = errors.judge(sentences, references, decode)
    penalty = decode.length_penalty + (
        "" if decode.length_penalty == "none" else f", alpha {decode.alpha}"
    )
    notes = [
        f"Scores are log-probabilities in nats over the length penalty ({penalty}), as the search "
        f"with a beam of {decode.beam_size} compares. Where the model scores the reference above "
        f"its own translation, by more than rounding may ({LEAD:.1%} of the score, and "
        f"{LEAD}), the search failed to find what the model prefers: a search error. "
        "Otherwise it prefers a text that is not the reference: a model error, though it may be "
        "another good translation. Only the reference is compared, so there may be more search "
        "errors than these (Stahlberg and Byrne 2019 find all by exact search).",
    ]
    if blank := sum(not sentence.tokens for sentence in sentences):
        notes.append(f"Left out: {blank:,} blank sentences.")
    if cut := len(sentences) - blank - len(judged):
        notes.append(
            f"Left out: {cut:,} sentences that are, or whose reference is, longer than the model "
            "reads, or whose reference has unknown words, which the search never writes."
        )
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


def _error_examples(judged: Sequence[Judged], kind: str) -> list[Example]:
    """The clearest errors of a kind: those whose two scores differ most."""
    own = [each for each in judged if each.kind == kind]
    own.sort(key=lambda each: -abs(each.given - each.found))
    about = ", {0.kind} error: reference {0.given:.3f}, translation {0.found:.3f}"
    return [_pair(each.sentence, about.format(each)) for each in own[:ERRORS]]


def _longest_translations(sentences: Sequence[Sentence]) -> Group:
    """The slowest sentences, by number of decoding steps, which is the same on every machine."""
    title = "The slowest translations"
    if not errors.are_scored(sentences):
        notes = ["This run did not keep the lengths in tokens: --mode=evaluate adds them."]
        return Group("slowest", title, notes)
    lengths = np.array([sentence.tokens for sentence in sentences])
    notes = [
        "A search takes at least as many steps of the decoder as its translation has tokens, and "
        "all sentences of a batch wait for its longest. These are the longest translations.",
        f"Half of the sentences take {np.median(lengths):,.0f} steps or fewer, 99 of 100 "
        f"{np.percentile(lengths, 99):,.0f}.",
    ]
    longest = sorted(sentences, key=lambda each: -each.tokens)[:SLOWEST]
    examples = [_pair(each, f": {each.tokens:,} steps") for each in longest]
    return Group("slowest", title, notes, [], examples)


def language_model(
    decode: ConfigDict, folder: Path, split: str, trained: TrainedRun | None, missing: str
) -> list[Group]:
    """Returns a text that the model writes, and its worst predictions; see `translations`."""
    notes, written = [f"Nothing is written: {missing}"], []
    if trained:
        text = "".join(trained.predictor.stream(trained.variables, ""))
        written = [Example("Sample", [Line("text", text)])]
        notes = [
            f"Drawn with seed {decode.seed}, temperature {decode.temperature}, top_k "
            f"{decode.top_k} and top_p {decode.top_p}, after an empty prompt."
        ]
    samples = Group("samples", "A text that it writes", notes, [], written)
    title, name = "The text it predicts worst", f"likelihoods/{split}.tsv"
    if not (folder / name).exists():
        notes = ["This run did not keep the likelihoods of its texts: --mode=evaluate adds them."]
        return [samples, Group("worst", title, notes)]
    pieces = []
    with reading(folder, name) as path:
        for number, line in enumerate(read_lines(path), 1):
            log_prob, tokens, _, text = line.split("\t", COLUMNS - 1)
            if int(tokens) >= MIN_TOKENS:
                perplexity = math.exp(min(-float(log_prob) / int(tokens), 700))
                pieces.append((perplexity, tokens, number, text))
    notes = [
        f"Perplexity of {len(pieces):,} pieces of the {split} text, each read without what was "
        f"before it: documents, or parts as long as a row, of at least {MIN_TOKENS} tokens.",
    ]
    if pieces:
        quartiles = np.percentile([piece[0] for piece in pieces], (25, 50, 75))
        shown = ", ".join(f"{value:,.2f}" for value in quartiles)
        notes.append(f"Its quartiles over the pieces are {shown}.")
    examples = [
        _example(f"Piece {n}: perplexity {perplexity:,.2f} over {tokens} tokens", {"text": text})
        for perplexity, tokens, n, text in sorted(pieces, reverse=True)[:WORST]
    ]
    return [samples, Group("worst", title, notes, [], examples)]


def classification(
    decode: ConfigDict, folder: Path, split: str, trained: TrainedRun | None, missing: str
) -> list[Group]:
    """Returns samples and the most confident mistakes; see `translations`."""
    with reading(folder, f"predictions/{split}.tsv") as path:
        rows = [(*line.split("\t", COLUMNS - 1), "")[:COLUMNS] for line in read_lines(path)]
        numbered = [*enumerate(rows, 1)]
        wrong = [(-float(row[2]), number, row) for number, row in numbered if row[0] != row[1]]

    def example(number: int, row: Sequence[str]) -> Example:
        label, predicted, probability, text = row
        title = f"Text {number}: probability {float(probability):.3f}"
        return _example(title, {"text": text, "class": label, "predicted": predicted})

    notes = [f"{len(wrong):,} of {len(rows):,} texts are taken for another class."]
    notes += ["The errors with the highest probability:"] * bool(wrong)
    samples = [example(*each) for each in _spread(numbered)]
    mistakes = [example(number, row) for _, number, row in sorted(wrong)[:MISTAKES]]
    return [
        Group("samples", f"Sample texts of the {split} set", [], [], samples),
        Group("worst", "The most confident mistakes", notes, [], mistakes),
    ]


REGISTRY: dict[str, Callable[..., list[Group]]] = {
    "translation": translations,
    "language_model": language_model,
    "classification": classification,
}
