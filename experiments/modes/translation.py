"""The modes of translators: `translate`, `score`, `attention` and `align`."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from experiments.attention import draw
from experiments.process.options import Options
from experiments.process.text_io import Lines, join_lines, line_mode, two_columns
from transformer.analysis.attention import Attention
from transformer.data.corpora import Tagger
from transformer.errors import UserError
from transformer.inference.base import Variables
from transformer.inference.hypotheses import Translation
from transformer.inference.segments import Segmenter, translate_lines
from transformer.runs.run import Run
from transformer.tasks.translation import TranslationTask

logger = logging.getLogger(__name__)

EXAMPLES = 5  # translations shown after training, and for the first of them its heat maps


@line_mode
def translate(run: Run, lines: Lines) -> Iterator[str]:
    """Yields the translation of each line; a blank line stays blank.

    With `decode.num_best` over one, each line becomes that many lines, `number<TAB>score<TAB>text`,
    numbered from one. A line of several sentences is split, see `segments.Segmenter`. A translation
    may have ends of lines: they are written as blanks.
    """
    trained = run.load_trained()
    translator = trained.predictor
    encode = translator.source_tokenizer.encode
    split = Segmenter(run.config, run.folder, encode, translator.max_length)
    for first, chunk in lines.chunks(prepare=lambda: translator.prepare(trained.variables)):
        results = translate_lines(translator, trained.variables, split, chunk, first, lines.advance)
        for number, best in enumerate(results, first):
            yield from write_best(number, best, run.config.decode.num_best)


def write_best(number: int, best: Sequence[Translation], count: int) -> list[str]:
    """Returns the lines of the best translations of a line, given its number, see `translate`."""
    if count > 1:
        return [f"{number}\t{each.score:.4f}\t{join_lines(each.text)}" for each in best]
    return [join_lines(best[0].text)]


@line_mode
def score(run: Run, lines: Lines) -> Iterator[str]:
    """Yields for each line `source<TAB>target` the log-probability of the target and its tokens.

    Log-probabilities are in nats and count the end of the sentence; so do the tokens. A blank line
    stays blank.
    """
    trained = run.load_trained()

    def parse(line: str, number: int) -> tuple[str, str] | None:
        if "\t" not in line and trained.predictor.is_blank(line):
            return None
        return two_columns(line, f"line {number}", "score")

    for first, chunk in lines.chunks(
        parse, lambda: trained.predictor.prepare_score(trained.variables)
    ):
        sources, targets = map(list, zip(*(pair or ["", ""] for pair in chunk), strict=True))
        scores = trained.predictor.score(
            trained.variables, sources, targets, first_line=first, done=lines.advance
        )
        for pair, (log_prob, tokens) in zip(chunk, scores, strict=True):
            yield f"{log_prob:.4f}\t{tokens}" if pair else ""


def attention(run: Run, options: Options) -> list[Path]:
    """Draws all heads of all layers for a sentence; returns the pictures and their explorer."""
    source = Tagger(run.config.data, options.source_tag)(options.needed_sentence(), "--sentence")
    trained = run.load_trained()
    translator = trained.predictor
    if translator.is_blank(source):
        raise UserError("--sentence is blank: give the sentence whose attention is to be drawn")
    maps = translator.attention(trained.variables, source, options.translation)
    if not maps.weights:
        raise UserError(draw.NO_ATTENTION.format(use="draw"))
    place = draw.text_folder(run.folder, source, options.translation)
    return draw.draw_attention(maps, trained.steps, place, run.folder, options)


def show(task: TranslationTask, variables: Variables, folder: Path) -> None:
    """Prints a few translations of the test set, and draws the attention of the first."""
    show_pairs(task, variables, folder, "source", "translation")


def show_pairs(
    task: TranslationTask, variables: Variables, folder: Path, source: str, output: str
) -> tuple[str, Attention]:
    """Does what `show` does, with names of the two sides; returns a source and its attention."""
    pairs = task.examples("test", EXAMPLES)
    sources = [pair.source for pair in pairs]
    for pair, best in zip(pairs, task.predictor.translate(variables, sources), strict=True):
        texts = {source: pair.source, "reference": pair.target, output: best[0].text}
        width = max(map(len, texts))
        logger.info("\n".join(f"  {name:{width}}  {text}" for name, text in texts.items()) + "\n")
    maps = task.predictor.attention(variables, sources[0])
    draw.show_attention(maps, folder)
    return sources[0], maps
