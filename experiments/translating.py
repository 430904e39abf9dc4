"""Using a trained translator: the modes `translate`, `score`, `attention` and `align`."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TextIO

from experiments import aligning, attention_maps
from experiments.lines import chunks, two_columns, warn
from experiments.options import Options
from experiments.workdir import load_trained
from transformer.errors import UserError
from transformer.progress import line_progress
from transformer.tasks.translator import Translator

EXAMPLES = 5  # translations shown after training, and for the first of them its heat maps


def translate(
    config: Any, folder: Path, lines: Iterable[str], output: TextIO, total: int | None = None
) -> int:
    """Writes the translation of each line; a blank line stays blank. Returns the lines written.

    With `decode.num_best` over one, each line becomes so many, `number<TAB>score<TAB>text`,
    numbered from one.

    Args:
      total: number of the lines, for the progress bar; None where nobody knows.
    """
    translator, variables, *_ = load_trained(folder, config, warn)
    written = 0
    with line_progress(total, output.isatty()) as advance:
        for first, chunk in chunks(lines):
            results = translator.translate(variables, chunk, first_line=first, done=advance)
            for number, best in enumerate(results, first):
                if config.decode.num_best > 1:
                    output.writelines(f"{number}\t{t.score:.4f}\t{t.text}\n" for t in best)
                    written += len(best)
                else:
                    output.write(best[0].text + "\n")
                    written += 1
            output.flush()
    return written


def score(
    config: Any, folder: Path, lines: Iterable[str], output: TextIO, total: int | None = None
) -> int:
    """Writes for each line `source<TAB>target` the log-probability of the target and its tokens.

    Log-probabilities are in nats and count the end of the sentence; so do the tokens. A blank line
    stays blank. Returns the lines written.

    Args:
      total: number of the lines, for the progress bar; None where nobody knows.

    Raises:
      UserError: a line has not two columns.
    """
    translator, variables, *_ = load_trained(folder, config, warn)
    written = 0
    with line_progress(total, output.isatty()) as advance:
        for first, chunk in chunks(lines):
            blank = ["\t" not in line and translator.is_blank(line) for line in chunk]
            pairs = [
                ["", ""] if empty else two_columns(line, f"line {number}", "score")
                for number, (line, empty) in enumerate(zip(chunk, blank, strict=True), first)
            ]
            sources, targets = map(list, zip(*pairs, strict=True))
            scores = translator.score(variables, sources, targets, first_line=first, done=advance)
            for empty, (log_prob, tokens) in zip(blank, scores, strict=True):
                output.write("\n" if empty else f"{log_prob:.4f}\t{tokens}\n")
            output.flush()
            written += len(chunk)
    return written


def attention(config: Any, folder: Path, options: Options) -> list[Path]:
    """Draws all heads of all layers for a sentence; returns the pictures.

    Raises:
      UserError: the sentence is missing or blank, or the model has no attention.
    """
    source = options.needed_sentence()
    translator, variables, *_ = load_trained(folder, config, warn)
    if translator.is_blank(source):
        raise UserError("--sentence is blank: give the sentence whose attention is to be drawn")
    name = re.sub(r"\W+", "_", source).strip("_")[:40] or "sentence"
    place = folder / "figures" / f"attention_{name}"
    pictures = draw_attention(
        translator, variables, source, options.translation, place, options.hide_end
    )
    if not pictures:
        raise UserError(aligning.NO_ATTENTION.format(use="draw"))
    return pictures


def show(task: Any, variables: Any, folder: Path, say: Callable[[str], None]) -> None:
    """Prints a few translations of the test set, and draws the attention of the first."""
    pairs = task.examples("test", EXAMPLES)
    sources = [pair.source for pair in pairs]
    for pair, best in zip(pairs, task.predictor.translate(variables, sources), strict=True):
        say(f"  source       {pair.source}")
        say(f"  reference    {pair.target}")
        say(f"  translation  {best[0].text}\n")
    pictures = draw_attention(
        task.predictor, variables, sources[0], None, folder / "figures" / "attention"
    )
    for picture in pictures:
        say(f"wrote {picture}")


def draw_attention(
    translator: Translator,
    variables: Any,
    source: str,
    target: str | None,
    folder: Path,
    hide_end: bool = False,
) -> list[Path]:
    """Draws the attention weights of a sentence below `folder`; returns the pictures.

    There are none of a model without attention.
    """
    seen = translator.attention(variables, source, target)
    if not seen.weights:
        return []
    maps = attention_maps.AttentionMaps(
        seen.weights, tuple(seen.source_tokens), tuple(seen.target_tokens)
    )
    if hide_end:
        maps = attention_maps.hide_end_of_sentence(maps)
    return attention_maps.draw(maps, folder)


FOLDER_MODES = {"attention": attention, "align": aligning.align}
LINE_MODES = {"translate": translate, "score": score}
