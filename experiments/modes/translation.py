"""The `translate`, `score` and `attention` modes for translation models."""

import functools
import itertools
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformer.analysis.attention import Attention
from transformer.data.corpora import Tagger, languages_of
from transformer.data.formats import registry
from transformer.data.formats.lines import DocumentLines
from transformer.data.formats.markup import read_html_lines
from transformer.data.formats.tags import Aligned, write_aligned
from transformer.errors import UserError
from transformer.inference.base import Variables
from transformer.inference.inspection import is_guided
from transformer.operations import Request
from transformer.runs.loaded import LoadedRun
from transformer.runs.run import Run
from transformer.tasks.translation import TranslationTask
from ..attention import draw
from ..process.modes import Options
from ..process.text_io import Lines, join_lines, line_mode, read_glossary, two_columns

logger = logging.getLogger(__name__)

BLANK_PAIR = "", ""  # for a blank line
EXAMPLES = 5  # number of translations shown after training; the first has heat maps


def open_document(run: Run, options: Options, path: Path) -> DocumentLines | None:
    """Returns the lines of a document, or None for a text file with one sentence per line."""
    suffix = path.suffix.lower()
    is_table = suffix in registry.COLUMNS and options.column is None
    if options.format not in (None, "html"):
        raise UserError(f"--format={options.format}: leave it out, or use html for lines with tags")
    if options.format is None and (suffix not in registry.FORMATS or is_table):
        return None
    columns = options.prefix_column or options.confidence or options.sort
    if options.output is None or columns or run.config.decode.num_best > 1:
        rule = "needs --output, and no flag of columns nor config.decode.num_best above 1"
        raise UserError(f"--input={path} is a document: it {rule}")
    languages = languages_of(run.config.data)
    data, name = path.read_bytes(), str(path)
    if options.format:
        document = read_html_lines(data, name)
    else:
        document = registry.read_document(data, name, options.column, languages)
    lines = DocumentLines(document, options.retranslate)
    if lines.left_out:
        more = "--retranslate translates them, too"
        logger.info(f"entries that keep their translation: {lines.left_out:,}; {more}")
    if lines.tagged and not is_guided(run.config.train):
        train = "train with config.train.guided_alignment to align words"
        logger.info(f"texts with tags: {lines.tagged:,}; where tags stand is a guess: {train}")
    return lines


@functools.partial(line_mode, open_document=open_document)
def translate(run: Run, lines: Lines) -> Iterator[str]:
    """Yields the translation of each line; a blank line stays blank.

    If `decode.num_best` is greater than one, each input line yields that many output lines
    `number<TAB>score<TAB>text` with the 1-based number of the input line. A document is written
    with other texts, see `data.formats`. Lines with several
    sentences are split by `segments.Segmenter`. Line breaks in a translation become spaces.
    """
    if lines.options.confidence or lines.options.sort:
        return write_confidence(run, lines)
    if lines.options.format and not lines.options.input:
        raise UserError(f"--format={lines.options.format} is for lines with tags: give --input")
    if lines.options.alignments:
        return write_alignments(run, lines)
    return write_texts(run, "translate", lines)


def write_confidence(run: Run, lines: Lines) -> Iterator[str]:
    """Yields translation and probability, or number, probability, source and translation."""
    if (count := run.config.decode.num_best) > 1:
        raise UserError(f"config.decode.num_best={count}: confidence is in the best: leave it out")
    for number, line, (best, sure) in answer_lines(run, "confidence", lines):
        text, probability = join_lines(best[0].text), f"{sure.probability:.4f}"
        row = (number, probability, line.replace("\t", " "), text)
        yield "\t".join(map(str, row)) if lines.options.sort else f"{text}\t{probability}"


def write_alignments(run: Run, lines: Lines) -> Iterator[str]:
    """Yields each translation with its word links in Pharaoh format."""
    if (count := run.config.decode.num_best) > 1:
        raise UserError(f"config.decode.num_best={count}: links are of the best: leave it out")
    for _, _, (best, links) in answer_lines(run, "align", lines):
        yield write_aligned(Aligned(join_lines(best[0].text), links))


def answer_lines(run: Run, name: str, lines: Lines) -> Iterator[tuple[int, Any, Any]]:
    """Yields (1-based number, content, an operation's results) for each line."""
    operation, count = LoadedRun(run).operation(name), run.config.decode.num_best
    glossary = read_glossary(lines.options.glossary)
    if glossary and not run.config.data.augment_glossary:
        train = "data.augment_glossary trains a model to follow and inflect them"
        logger.info(f"the search forces the terms, which costs quality: {train}")

    def parse(line: str, number: int) -> Any:
        place = f"line {number}"
        if not operation.has_pairs:
            return operation.checked(line, place)
        is_blank = "\t" not in line and operation.predictor.is_blank(line)
        return BLANK_PAIR if is_blank else two_columns(line, place, name)

    for first, chunk in lines.chunks(parse):
        texts, prefixes = chunk, ()
        if lines.options.prefix_column:
            texts, _, prefixes = zip(*(line.partition("\t") for line in chunk), strict=True)
        more = {"first": first, "is_file": True, "glossary": glossary}
        request = Request(texts, count, prefixes=prefixes, **more)
        yield from zip(itertools.count(first), chunk, operation.answer(request, lines.advance))


def write_texts(run: Run, name: str, lines: Lines) -> Iterator[str]:
    """Yields the output lines of an operation, in the format of `translate`."""
    count = run.config.decode.num_best
    for number, _, best in answer_lines(run, name, lines):
        for each in best:
            text = join_lines(each.text)
            yield f"{number}\t{each.score:.4f}\t{text}" if count > 1 else text


@line_mode
def score(run: Run, lines: Lines) -> Iterator[str]:
    """Yields the log-probability in nats and the number of tokens of each line.

    For a pair `source<TAB>target`, both numbers are for the target. They include the end-of-text
    token if the model was trained with it. In a file of pairs, a blank line stays blank.
    """
    for _, pair, [score] in answer_lines(run, "score", lines):
        yield f"{score.log_prob:.4f}\t{score.tokens}" if pair is not BLANK_PAIR else ""


def attention(run: Run, options: Options) -> list[Path]:
    """Plots the attention of all heads for a sentence; returns the figures and the explorer."""
    sentence = options.needed("sentence", "picture")
    source = Tagger(run.config.data, options.source_tag)(sentence, "--sentence")
    trained = run.load_trained()
    translator = trained.predictor
    if translator.is_blank(source):
        raise UserError("--sentence is blank: give the sentence whose attention is to be drawn")
    maps = translator.attention(trained.variables, source, options.translation)
    place = draw.text_folder(run.folder, source, options.translation)
    return draw.draw_attention(maps, trained.steps, place, run.folder, options)


def show(task: TranslationTask, variables: Variables, folder: Path) -> list[Path]:
    """Prints translations of a few test sentences, and plots the attention for the first one."""
    _, maps = show_pairs(task, variables, "source", "translation")
    return draw.show_attention(maps, folder)


def show_pairs(
    task: TranslationTask, variables: Variables, source: str, output: str
) -> tuple[str, Attention]:
    """Prints pairs, with names for both sides; returns the first source and its attention."""
    pairs = task.examples("test", EXAMPLES)
    sources = [pair.source for pair in pairs]
    for pair, best in zip(pairs, task.predictor.translate(variables, sources), strict=True):
        texts = {source: pair.source, "reference": pair.target, output: best[0].text}
        width = max(map(len, texts))
        logger.info("\n".join(f"  {name:{width}}  {text}" for name, text in texts.items()) + "\n")
    return sources[0], task.predictor.attention(variables, sources[0])
