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
from experiments.report.numbers import Table
from transformer.data.files.text import read_lines
from transformer.errors import UserError
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
    notes: list[str]
    tables: list[Table]
    examples: list[Example]


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
    spread = sentences[:: max(1, len(sentences) // SAMPLES)][:SAMPLES]
    drawn, notes = [None] * len(spread), [f"Attention is not drawn: {missing}"]
    if trained:
        sides = [each.source for each in spread], [each.translation for each in spread]
        drawn, notes = cross_attention(trained, *sides), []
    if any(drawn):
        notes.append(
            "Next to each sentence: its cross-attention, the mean over the heads of the last "
            "layer. Each row is a written token, and shows the attention while it is written; "
            "each column is a source token. Stronger colour is more weight."
        )
    samples = [
        Example(f"Sentence {each.line}", _pair_lines(each), own)
        for each, own in zip(spread, drawn, strict=True)
    ]
    title = f"Sample translations of the {split} set"
    return [
        Group("samples", title, notes, [], samples),
        _errors(decode, sentences, trained, missing),
        _worst_translations(sentences),
        _longest_translations(sentences),
    ]


def _pair_lines(sentence: Sentence) -> list[Line]:
    return [
        Line("source", shortened(sentence.source, MAX_TEXT_LENGTH)),
        Line("reference", shortened(sentence.reference, MAX_TEXT_LENGTH)),
        Line("translation", shortened(sentence.translation, MAX_TEXT_LENGTH)),
    ]


def _errors(
    decode: ConfigDict, sentences: Sequence[Sentence], trained: TrainedRun | None, missing: str
) -> Group:
    """Search errors against model errors."""
    title = "Search errors and model errors"
    if not errors.are_scored(sentences):
        missing = "This run did not keep the scores of its translations: --mode=evaluate adds them"
        return Group("errors", title, [missing], [], [])
    if trained is None:
        return Group("errors", title, [f"References are not scored: {missing}"], [], [])
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
    rows = []
    for kind, name in kinds.items():
        count = sum(each.kind == kind for each in judged)
        rows.append([name, f"{count:,}", f"{count / max(1, len(judged)):.1%}"])
    table = Table("Outcome per sentence", ["", "sentences", "fraction"], rows)
    return Group("errors", title, notes, [table], _error_examples(judged))


def _error_examples(judged: Sequence[Judged]) -> list[Example]:
    """The clearest errors of each kind: those whose two scores differ most."""
    examples = []
    for kind, name in ((SEARCH, "search error"), (MODEL, "model error")):
        own = [each for each in judged if each.kind == kind]
        own.sort(key=lambda each: -abs(each.given - each.found))
        examples += [
            Example(
                f"Sentence {each.sentence.line}, {name}: reference {each.given:.3f}, translation "
                f"{each.found:.3f}",
                _pair_lines(each.sentence),
            )
            for each in own[:ERRORS]
        ]
    return examples


def _worst_translations(sentences: Sequence[Sentence]) -> Group:
    worst = sorted(sentences, key=lambda each: each.chrf)[:WORST]
    notes = ["The lowest chrF (Popović 2015) of a sentence against its reference."]
    examples = [
        Example(f"Sentence {each.line}: chrF {each.chrf:.1f}", _pair_lines(each))
        for each in worst
        if each.translation != each.reference
    ]
    return Group("worst", "The worst translations", notes, [], examples)


def _longest_translations(sentences: Sequence[Sentence]) -> Group:
    """The slowest sentences, by number of decoding steps, which is the same on every machine."""
    title = "The slowest translations"
    notes = [
        "A search takes at least as many steps of the decoder as its translation has tokens, and "
        "all sentences of a batch wait for its longest. These are the longest translations."
    ]
    if not errors.are_scored(sentences):
        notes = ["This run did not keep the lengths in tokens: --mode=evaluate adds them."]
        return Group("slowest", title, notes, [], [])
    lengths = np.array([sentence.tokens for sentence in sentences])
    notes.append(
        f"Half of the sentences take {np.median(lengths):,.0f} steps or fewer, 99 of 100 "
        f"{np.percentile(lengths, 99):,.0f}."
    )
    longest = sorted(sentences, key=lambda each: -each.tokens)[:SLOWEST]
    examples = [
        Example(f"Sentence {each.line}: {each.tokens:,} steps", _pair_lines(each))
        for each in longest
    ]
    return Group("slowest", title, notes, [], examples)


def language_model(
    decode: ConfigDict, folder: Path, split: str, trained: TrainedRun | None, missing: str
) -> list[Group]:
    """Returns a text that the model writes, and its worst predictions; see `translations`."""
    title, text = "A text that it writes", None
    notes = [f"Nothing is written: {missing}"]
    if trained:
        text = "".join(trained.predictor.stream(trained.variables, ""))
        notes = [
            f"Drawn with seed {decode.seed}, temperature {decode.temperature}, top_k "
            f"{decode.top_k} and top_p {decode.top_p}, after an empty prompt."
        ]
    written = [] if text is None else [Example("Sample", [Line("text", text)])]
    return [Group("samples", title, notes, [], written), _worst_pieces(folder, split)]


def _worst_pieces(folder: Path, split: str) -> Group:
    title, path = "The text it predicts worst", folder / "likelihoods" / f"{split}.tsv"
    if not path.exists():
        notes = ["This run did not keep the likelihoods of its texts: --mode=evaluate adds them."]
        return Group("worst", title, notes, [], [])
    pieces = []
    with reading(f"likelihoods/{path.name}"):
        for number, line in enumerate(read_lines(path), 1):
            log_prob, tokens, _, text = line.split("\t", 3)
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
    pieces.sort(reverse=True)
    examples = [
        Example(
            f"Piece {number}: perplexity {perplexity:,.2f} over {tokens} tokens",
            [Line("text", shortened(text, MAX_TEXT_LENGTH))],
        )
        for perplexity, tokens, number, text in pieces[:WORST]
    ]
    return Group("worst", title, notes, [], examples)


def classification(
    decode: ConfigDict, folder: Path, split: str, trained: TrainedRun | None, missing: str
) -> list[Group]:
    """Returns samples and the most confident mistakes; see `translations`."""
    path = folder / "predictions" / f"{split}.tsv"
    if not path.exists():
        raise UserError(f"predictions/{split}.tsv is missing: --mode=evaluate writes it")
    with reading(f"predictions/{path.name}"):
        rows = [(*line.split("\t", 3), "")[:4] for line in read_lines(path)]
        numbered = enumerate(rows, 1)
        wrong = [(float(row[2]), number, row) for number, row in numbered if row[0] != row[1]]
    wrong.sort(key=lambda each: (-each[0], each[1]))

    def example(number: int, row: Sequence[str]) -> Example:
        label, predicted, probability, text = row
        lines = [
            Line("text", shortened(text, MAX_TEXT_LENGTH)),
            Line("class", label),
            Line("predicted", predicted),
        ]
        return Example(f"Text {number}: probability {float(probability):.3f}", lines)

    samples = [*enumerate(rows, 1)][:: max(1, len(rows) // SAMPLES)][:SAMPLES]
    notes = [f"{len(wrong):,} of {len(rows):,} texts are taken for another class."]
    if wrong:
        notes.append("The errors with the highest probability:")
    mistakes = [example(number, row) for _, number, row in wrong[:MISTAKES]]
    title = f"Sample texts of the {split} set"
    return [
        Group("samples", title, [], [], [example(number, row) for number, row in samples]),
        Group("worst", "The most confident mistakes", notes, [], mistakes),
    ]


REGISTRY: dict[str, Callable[..., list[Group]]] = {
    "translation": translations,
    "language_model": language_model,
    "classification": classification,
}
