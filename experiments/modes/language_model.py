"""The `generate` and `attention` modes for language models; `score` is in `translation`."""

import logging
from collections.abc import Iterator
from pathlib import Path

from transformer.data.corpora import Tagger
from transformer.errors import UserError
from transformer.inference.base import Variables
from transformer.runs.run import Run
from transformer.tasks.language_model import LanguageModelTask
from ..attention import draw
from ..process.modes import Options
from ..process.text_io import Lines, line_mode, open_output
from .translation import answer_lines

logger = logging.getLogger(__name__)

DRAWN = 32  # number of tokens in the attention plots after training


def generate(run: Run, options: Options) -> None:
    """Writes a continuation of each line of --input, or of --prompt, streamed if it is sampled."""
    if options.prompt is None:
        return generate_lines(run, options)
    if options.input is not None:
        raise UserError("--prompt is for --mode=generate, in place of --input")
    with open_output(options.output) as output:
        trained = run.load_trained()
        if run.config.decode.search == "beam" or run.config.decode.num_best > 1:
            [best] = trained.predictor.write(trained.variables, [options.prompt])
            output.write("\n\n".join(text for text, _ in best))
        else:
            for piece in trained.predictor.stream(trained.variables, options.prompt):
                output.write(piece)
                output.flush()
        output.write("\n")


@line_mode
def generate_lines(run: Run, lines: Lines) -> Iterator[str]:
    """Yields each line with its continuation.

    Line breaks in a text are escaped as `\\n` and `\\r`. If `decode.num_best` is greater than one,
    each input line yields that many output lines `number<TAB>text` with the 1-based number of the
    input line. Beam search yields `number<TAB>score<TAB>text`, best first.
    """
    count = run.config.decode.num_best
    for number, _, best in answer_lines(run, "generate", lines):
        for text, score in best:
            line = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
            cell = "" if score is None else f"{score:.4f}\t"
            yield f"{number}\t{cell}{line}" if count > 1 else line


def attention(run: Run, options: Options) -> list[Path]:
    """Plots the attention of all heads for a text; returns the figures and the explorer."""
    sentence = options.needed("sentence", "picture", "translation", "hide_eos")
    Tagger(run.config.data, options.source_tag)
    trained = run.load_trained()
    maps = trained.predictor.attention(trained.variables, sentence)
    place = draw.text_folder(run.folder, sentence)
    return draw.draw_attention(maps, trained.steps, place, run.folder, options)


def show(task: LanguageModelTask, variables: Variables, folder: Path) -> list[Path]:
    """Prints a generated sample, and plots the attention over the sample's first tokens."""
    generator = task.predictor
    text = "".join(generator.stream(variables, ""))
    logger.info(f"it writes:\n\n{text}\n")
    # Leaves room for BOS, and for extra tokens when the decoded text is encoded again.
    start = generator.tokenizer.encode([text])[0][: min(DRAWN, generator.context - 2)]
    if not start:
        return []
    maps = generator.attention(variables, generator.tokenizer.decode(start))
    return draw.show_attention(maps, folder)
