"""The mode `align`: scores every cross-attention head as a word aligner, and uses the best one."""

import contextlib
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from ml_collections import ConfigDict
from rich.table import Table

from experiments.display.figure_files import save_figure
from experiments.heads.links import (
    Head,
    Score,
    attended_words,
    best_of,
    first_of,
    links_of,
    read_csv,
    score_heads,
    write_csv,
)
from experiments.heads.pharaoh import format_links, read_links
from experiments.options import Options
from experiments.text_io import (
    input_file,
    open_output,
    print_table,
    read_lines,
    two_columns,
)
from transformer.analysis.alignment import ROWS, GoldLinks, most_attended
from transformer.data import held_out
from transformer.data.characters import canonicalize
from transformer.data.corpora import Tagger, parts_of
from transformer.data.pairs import Pair, canonical
from transformer.errors import UserError
from transformer.model.build import has_cross_attention
from transformer.progress import line_progress
from transformer.workdir import check_same_run, load_trained, make_writable

logger = logging.getLogger(__name__)

SCORES = Path("figures", "alignment", "alignment.csv")  # in a run's folder
NO_ATTENTION = (
    "config.model.recurrent_attention=none: this model has no attention to {use}; train one with "
    "--config.model.recurrent_attention=additive"
)


def align(config: ConfigDict, folder: Path, options: Options) -> list[Path]:
    """Scores all heads of cross-attention against gold links; returns the table and the pictures.

    Pairs are those of `options.input`, or the test set, and links those of `options.links`, or
    those that the data knows. With `options.output`, the links of the best head are written to it.
    With an input whose links are unknown, nothing is scored, and its links are those of the head
    that was best when this run was last scored.

    Raises:
      UserError: pairs or links cannot be read or do not fit each other, the links are unknown, a
        tag is given for sources that have theirs, or the model has no attention.
    """
    if not has_cross_attention(config.model):
        raise UserError(NO_ATTENTION.format(use="align words by"))
    if options.source_tag is not None and options.input is None:
        raise UserError(
            f"--source_tag={options.source_tag} is for another text: name it with --input"
        )
    check_same_run(folder, config)
    pairs, words = _pairs(config, folder, options), _tag_words(options)
    if options.input is not None and options.links is None:
        return _align(config, folder, options, pairs, words)
    gold = _gold(config, options, pairs, words)
    read = [Path(name).expanduser() for name in (options.input, options.links) if name is not None]
    with contextlib.ExitStack() as stack:
        if options.output is not None:  # which may be impossible, and is better known before
            output = stack.enter_context(open_output(options.output, *read))
        run = load_trained(folder, config)
        place = folder / SCORES
        make_writable(place.parent)
        with line_progress(len(pairs), hidden=False) as advance:
            found = score_heads(run.predictor, run.variables, pairs, gold, advance)
        if options.output is not None:
            output.writelines(
                f"{format_links(_shifted(links, -words))}\n" for links in found.links(found.best)
            )
    from experiments.heads.alignment_figures import links_figure, scores_figure

    print_scores(found.scores)
    write_csv(place, found.scores)
    files = [place, *(place.with_name(name) for name in ("error_rate.png", "links.png"))]
    save_figure(scores_figure(found.scores), files[1])
    save_figure(links_figure(pairs, gold, found), files[2])
    return files + ([] if options.output is None else [Path(options.output).expanduser()])


def _pairs(config: ConfigDict, folder: Path, options: Options) -> list[Pair]:
    """The pairs to align; of a blank line both sides are empty."""
    path, tag = input_file(options.input), Tagger(config.data, options.source_tag)
    if path is None:
        parts = parts_of(config.data, "test")
        return [canonical(p) for part in parts for p in held_out.read_pairs(folder, part)]
    return [
        canonical(Pair(*(two_columns(tag(line, place), place, "align") if seen else ("", ""))))
        for number, line in enumerate(read_lines(path), 1)
        for place, seen in [(f"{path}, line {number}", canonicalize(line))]
    ]


def _tag_words(options: Options) -> int:
    """The words of the tag that is put before each source, of which no link of a user knows."""
    return len((options.source_tag or "").split())


def _shifted(links: Iterable[tuple[int, int]], words: int) -> tuple[tuple[int, int], ...]:
    """Links of sources with this number of words before them; without them, if it is negative."""
    return tuple((i + words, j) for i, j in links if i + words >= 0)


def _gold(
    config: ConfigDict, options: Options, pairs: Sequence[Pair], words: int
) -> list[GoldLinks]:
    """The links that `options.links` or else the data knows, of sources with their tags."""
    if options.links is not None:
        sizes = [
            (max(0, len(pair.source.split()) - words), len(pair.target.split())) for pair in pairs
        ]
        path = Path(options.links).expanduser()
        gold = [
            GoldLinks(*(_shifted(links, words) for links in own))
            for own in read_links(path, sizes, options.input or "the test set")
        ]
    else:
        gold = [GoldLinks(pair.alignment) for pair in pairs if pair.alignment is not None]
        if len(gold) < len(pairs):
            raise UserError(
                f"config.data.source={config.data.source} does not say which words are "
                "translations of each other: give --input=FILE, source<TAB>target a line, and "
                "--links=FILE, their links in Pharaoh format"
            )
    if not any(links.sure for links in gold):
        if options.links is None:
            what = f"the test set of config.data.source={config.data.source} has no link"
        else:
            what = f"--links {options.links} has no sure link, written 0-0"
        raise UserError(f"{what}: nothing to score")
    return gold


def _known_head(path: Path) -> Head:
    """The best head of the last time that heads were scored."""
    if not path.exists():
        raise UserError(
            "--links is missing: give the gold links of --input in Pharaoh format; once heads are "
            "scored, the best of them aligns other text without"
        )
    scores = read_csv(path)
    best = best_of(scores)
    logger.info(f"links by {best}: its error rate was {scores[best].error_rate:.3f}, see {path}")
    return best


def _align(
    config: ConfigDict, folder: Path, options: Options, pairs: Sequence[Pair], words: int
) -> list[Path]:
    """Writes the links that the head known as the best makes, one line per pair."""
    head = _known_head(folder / SCORES)
    if options.output is None:
        raise UserError("--output is missing: name the file for the links, or give --links")
    run = load_trained(folder, config)
    with (
        open_output(options.output, input_file(options.input), folder / SCORES) as output,
        line_progress(len(pairs), hidden=False) as advance,
    ):
        for weights in attended_words(run.predictor, run.variables, pairs, advance):
            own = weights[(list(ROWS).index(head.rows), *head.indices)]
            links = links_of(first_of(most_attended(own)))
            output.write(format_links(_shifted(links, -words)) + "\n")
    return [Path(options.output).expanduser()]


def print_scores(scores: dict[Head, Score]) -> None:
    """Prints a row for each head and mean of heads, with the scores by both kinds of rows."""
    table = Table(
        title="heads of cross-attention as word aligners",
        caption="AER: alignment error rate. output, input: a target word's links are those of the "
        f"step that writes it, or that reads it. * the best head: {best_of(scores)}; it was chosen "
        "on these pairs, so that its scores are optimistic",
    )
    table.add_column("layer", justify="right")
    table.add_column("head", justify="right")
    for rows in ROWS:
        for name in (f"{rows}: AER", "precision", "recall"):
            table.add_column(name, justify="right")
    best = best_of(scores)
    first, *_ = ROWS
    for head in [head for head in scores if head.rows == first]:
        cells = [
            f"{number:.3f}" + "*" * (name == "error_rate" and head._replace(rows=rows) == best)
            for rows in ROWS
            for name, number in scores[head._replace(rows=rows)]._asdict().items()
        ]
        table.add_row(*(str(n or "mean") for n in head[1:]), *cells, end_section=not head.alone)
    print_table(table, keys=2)
