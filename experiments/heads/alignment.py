"""The `align` mode: scores each cross-attention head as a word aligner, and uses the best."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from transformer.analysis.alignment import ALIGNMENT_ROWS, GoldLinks, most_attended
from transformer.data import held_out
from transformer.data.characters import canonicalize, split_words
from transformer.data.corpora import Tagger, parts_of
from transformer.data.files.text import read_lines
from transformer.data.pairs import Pair
from transformer.data.parallel.texts import read_links
from transformer.errors import UserError
from transformer.inference.inspection import attended_words
from transformer.model.build import has_cross_attention
from transformer.runs.run import Run
from transformer.training.progress import line_progress
from ..attention.draw import NO_ATTENTION
from ..display import plotting
from ..display.labels import labels_of, text_widths
from ..process.modes import Options
from ..process.text_io import input_file, open_output, two_columns
from ..results.table import Table, print_rows
from . import links as word_links
from .links import Attributor, Head, HeadLinks, LinkScore, best_of, format_links

logger = logging.getLogger(__name__)

SCORES = Path("figures", "alignment", "alignment.csv")  # relative to a run's folder
EXAMPLES = 4  # number of sentence pairs with drawn links
MAX_DRAWN_WORDS = 24  # maximum number of words per side
FONT_SIZE = 9.0  # points
WORD_GAP, PAIR_HEIGHT, PAIR_GAP, LEGEND_HEIGHT, MARGIN = 0.14, 1.5, 0.35, 0.62, 0.15  # inches
MIN_WIDTH = 6.0  # inches, enough for the title and the legend
RATE_CELL = 0.52  # inches: cell side in the error rate maps
LOOKS: dict[str, dict[str, Any]] = {  # line style of each kind of link
    "right": {"color": plotting.COLOURS[0], "linestyle": "solid"},
    "wrong": {"color": plotting.COLOURS[1], "linestyle": "dashed"},
    "missed": {"color": "#000000", "linestyle": "dotted"},
}


def align(run: Run, options: Options) -> list[Path]:
    """Scores all cross-attention heads against gold links; returns the table and figure paths.

    The pairs come from --input or from the test set, and the gold links from --links or from the
    data. If --output is set, the best head's alignments are written to it. With --input but no
    --links, nothing is scored, and the head with the best saved score aligns the pairs.
    """
    if not has_cross_attention(run.config.model):
        raise UserError(NO_ATTENTION.format(use="align words by"))
    if options.input is None:
        options.refuse(("source_tag",), "is for another text: name it with --input")
    run.check_same()
    pairs = _pairs(run, options)
    # Word numbers in link files do not count the source tag.
    words = len((options.source_tag or "").split())
    if options.input is not None and options.links is None:
        return _align(run, options, pairs, words)
    gold = _gold(run.config.data.source, options, pairs, words)
    read = [Path(name).expanduser() for name in (options.input, options.links) if name is not None]
    with open_output(options.output, *read) as output:  # first, to report errors before scoring
        trained = run.load_trained()
        place = run.folder / SCORES
        place.parent.mkdir(parents=True, exist_ok=True)
        with line_progress(len(pairs), hidden=False) as advance:
            heads = word_links.score_heads(trained, pairs, gold, advance)
        if options.output is not None:
            output.writelines(f"{format_links(x, words)}\n" for x in heads.best_links())
    print_scores(heads.scores)
    if run.config.train.guided_alignment:
        score = word_links.score_trained(trained, run.config.train, pairs, gold)
        print("guided alignment: AER {:.3f}, precision {:.3f}, recall {:.3f}".format(*score))
    if options.attribution:
        with line_progress(len(pairs), hidden=False) as advance:
            by_gradient = word_links.score_heads(trained, pairs, gold, advance, Attributor)
        scores = by_gradient.scores[Head("output", 1, 1)]
        print("integrated gradients: AER {:.3f}, precision {:.3f}, recall {:.3f}".format(*scores))
    word_links.write_csv(place, heads.scores)
    files = [
        place,
        plotting.save_figure(rates_figure(heads.scores), place.with_name("error_rate.png")),
        plotting.save_figure(links_figure(pairs, gold, heads), place.with_name("links.png")),
    ]
    return files + ([] if options.output is None else [Path(options.output).expanduser()])


def _pairs(run: Run, options: Options) -> list[Pair]:
    """Returns the unnormalised pairs to align; a blank line becomes a pair of empty texts."""
    path, tag = input_file(options.input), Tagger(run.config.data, options.source_tag)
    if path is None:
        parts = parts_of(run.config.data, "test")
        return [pair for part in parts for pair in held_out.read_pairs(run.folder, part)]
    pairs = []
    for number, line in enumerate(read_lines(path), 1):
        place = f"{path}, line {number}"
        is_blank = not canonicalize(line) and "\t" not in line.strip()
        sides = ("", "") if is_blank else two_columns(tag(line, place), place, "align")
        pairs.append(Pair(*sides))
    return pairs


def _gold(data_source: str, options: Options, pairs: Sequence[Pair], words: int) -> list[GoldLinks]:
    """Returns gold links from --links or the data, with source tags counted as words."""
    if options.links is not None:
        counts = [(len(split_words(pair.source)), len(split_words(pair.target))) for pair in pairs]
        sizes = [(max(0, source - words), target) for source, target in counts]
        path = Path(options.links).expanduser()
        read = read_links(path, sizes, f"--links {path}")
        gold = [GoldLinks(*([(i + words, j) for i, j in x] for x in both)) for both in read]
        what = f"--links {options.links} has no sure link, written 0-0"
    else:
        gold = [GoldLinks(pair.alignment) for pair in pairs if pair.alignment is not None]
        if len(gold) < len(pairs):
            raise UserError(
                f"config.data.source={data_source} does not say which words are "
                "translations of each other: give --input=FILE, source<TAB>target a line, and "
                "--links=FILE, their links in Pharaoh format"
            )
        what = f"the test set of config.data.source={data_source} has no link"
    if any(links.sure for links in gold):
        return gold
    raise UserError(f"{what}: nothing to score")


def _align(run: Run, options: Options, pairs: Sequence[Pair], words: int) -> list[Path]:
    """Writes the alignments of the head with the best saved score, one line per pair."""
    place = run.folder / SCORES
    if not place.exists():
        raise UserError(
            "--links is missing: give the gold links of --input in Pharaoh format; they are "
            "needed once, then the best head aligns other text"
        )
    scores = word_links.read_csv(place)
    best = best_of(scores)
    logger.info(f"links by {best}: its error rate was {scores[best].error_rate:.3f}, see {place}")
    if options.output is None:
        raise UserError("--output is missing: name the file for the links, or give --links")
    trained = run.load_trained()
    with (
        open_output(options.output, input_file(options.input), place) as output,
        line_progress(len(pairs), hidden=False) as advance,
    ):
        model = trained.predictor, trained.variables
        for weights in attended_words(*model, pairs, advance):
            of_head = weights[(list(ALIGNMENT_ROWS).index(best.rows), *best.indices)]
            links = word_links.links_of(word_links.first_of(most_attended(of_head)))
            output.write(f"{format_links(links, words)}\n")
    return [Path(options.output).expanduser()]


def print_scores(scores: dict[Head, LinkScore]) -> None:
    """Prints a table of the scores of each head and each mean over heads, for both row types."""
    best = best_of(scores)
    measures = [name for rows in ALIGNMENT_ROWS for name in (f"{rows}: AER", "precision", "recall")]
    lines = []
    for head in [head for head in scores if head.rows == next(iter(ALIGNMENT_ROWS))]:
        cells = [
            f"{number:.3f}" + "*" * (name == "error_rate" and head._replace(rows=rows) == best)
            for rows in ALIGNMENT_ROWS
            for name, number in scores[head._replace(rows=rows)]._asdict().items()
        ]
        lines.append([*(str(number or word_links.MEAN) for number in head[1:]), *cells])
    names = ("layer", "head", *measures)
    print_rows(Table("heads of cross-attention as word aligners", names, lines, names=0))
    print(
        "AER: alignment error rate. output, input: a target word's links are those of the step "
        f"that writes it, or that reads it. * the best head: {best}; it was chosen on these pairs, "
        "so that its scores are optimistic"
    )


# -- the figure


def rates_figure(scores: dict[Head, LinkScore]) -> Figure:
    """Returns heat maps of per-head error rates for each row type; the best head is outlined.

    The last column is for the mean attention of a layer, and the last row for that of all layers.
    """
    layers, heads = (max(head.indices[i] for head in scores) + 1 for i in (0, 1))
    width, height = RATE_CELL * (heads + 1), RATE_CELL * (layers + 1)
    figure = plotting.new_figure(max(MIN_WIDTH, 2 * width + 2.5), height + 1.2)
    panels, best = figure.subplots(1, len(ALIGNMENT_ROWS)), best_of(scores)
    for axes, rows in zip(panels, ALIGNMENT_ROWS, strict=True):
        rates = np.full((layers + 1, heads + 1), np.nan)
        for head in (head for head in scores if head.rows == rows):
            rates[head.indices] = scores[head].error_rate
        texts = np.where(np.isnan(rates), "", np.vectorize("{:.2f}".format)(rates))
        image = plotting.heat_map(axes, rates, texts, cmap="Blues_r")
        axes.set(title=f"rows by {rows}", xlabel="head", ylabel="layer")
        for axis, count in ((axes.xaxis, heads), (axes.yaxis, layers)):
            axis.set_ticks(range(count + 1), labels=[*map(str, range(1, count + 1)), "mean"])
        if best.rows == rows:
            layer, head = best.indices
            frame = {"fill": False, "edgecolor": plotting.COLOURS[1], "linewidth": 2.5, "zorder": 9}
            axes.add_patch(Rectangle((head - 0.5, layer - 0.5), 1, 1, **frame))
    figure.suptitle("framed: the best head, chosen on these pairs", fontsize=9)
    plotting.add_colour_bar(image, [0, 0.5, 1], "alignment error rate", ax=panels)
    return figure


def links_figure(pairs: Sequence[Pair], gold: Sequence[GoldLinks], heads: HeadLinks) -> Figure:
    """Plots the best head's word alignments of a few pairs, with sources above targets.

    Correct links (sure or possible) are solid lines, wrong links are dashed, and missed sure links
    are dotted.
    """
    chosen = list(range(len(pairs)))[:: max(1, len(pairs) // EXAMPLES)][:EXAMPLES]
    links = heads.best_links()
    height = LEGEND_HEIGHT + PAIR_HEIGHT * len(chosen) - PAIR_GAP + MARGIN
    figure = plotting.new_figure(MIN_WIDTH, height, layout=None)
    axes = figure.add_axes((0, 0, 1, 1), ylim=(0, height))
    axes.set_axis_off()
    width = MIN_WIDTH
    for n, i in enumerate(chosen):
        top = height - LEGEND_HEIGHT - n * PAIR_HEIGHT
        across = _draw_pair(axes, pairs[i], top, set(links[i]), gold[i])
        width = max(width, across + 2 * MARGIN)
    figure.set_size_inches(width, height)
    axes.set_xlim(-width / 2, width / 2)
    handles = [Line2D([], [], linewidth=1.5, label=kind, **look) for kind, look in LOOKS.items()]
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, 1 - 0.28 / height), "ncols": 3}
    axes.legend(handles=handles, **plotting.LEGEND, borderpad=0, **place)
    title = f"links by {best_of(heads.scores)}, chosen on these pairs"
    axes.text(0, height - 0.08, title, ha="center", va="top", fontsize=9)
    return figure


def _draw_pair(
    axes: Axes, pair: Pair, top: float, links: set[tuple[int, int]], gold: GoldLinks
) -> float:
    """Draws a pair as two rows of linked words, centred at x = 0; returns the width in inches."""
    source = split_words(pair.source)
    labels, style = labels_of([*source, *split_words(pair.target)], FONT_SIZE)
    heights = top - 0.2, top - PAIR_HEIGHT + PAIR_GAP + 0.1
    middles, width = [], 0.0
    rows = labels[: len(source)], labels[len(source) :]
    for row, height in zip(rows, heights, strict=True):
        words = row[:MAX_DRAWN_WORDS] + ["…"] * (len(row) > MAX_DRAWN_WORDS)
        wide = np.array(text_widths(words, style)) + WORD_GAP
        width = max(width, wide.sum())
        middles.append(np.cumsum(wide) - wide / 2 - wide.sum() / 2)
        for word, x in zip(words, middles[-1], strict=True):
            axes.text(x, height, word, ha="center", va="center_baseline", **style)
    sure, true = set(gold.sure), {*gold.sure, *gold.possible}
    ends = heights[0] - 0.11, heights[1] + 0.13
    kinds = (links & true, links - true, sure - links)
    for of_kind, look in zip(kinds, LOOKS.values(), strict=True):
        for i, j in of_kind:
            if max(i, j) < MAX_DRAWN_WORDS:
                axes.plot((middles[0][i], middles[1][j]), ends, linewidth=1.4, **look)
    return width
