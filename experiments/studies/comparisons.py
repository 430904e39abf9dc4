"""How often do the tests of `--mode=compare` find a difference if there is none?

    python -m experiments.studies.comparisons --runs=runs/a --others=runs/b

`--runs` are seeds of one setting and `--others` seeds of another, as `--runs` of `--mode=compare`
names a system. Comparisons are drawn from their real translations, each on other sentences: half of
the test set, drawn without replacement. Told is the fraction of comparisons with p < 0.05, before
any correction, and its 95% interval (Clopper and Pearson 1934), for these ways to draw two systems:

- the same model: two runs of `--runs` whose translations of each sentence are exchanged with a
  chance of one half. Neither system is better, so at most 5% may be found.
- the same setting: runs of `--runs` alone, one or several for each system, none for both. The
  systems differ in the seed.
- two settings: runs of `--runs`, and as many of `--others`.

"texts alone" is a control: the bootstrap over texts as if the seeds of a system were one model.
"""

import sys
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from jaxtyping import Float
from rich.table import Table

from experiments.comparison.differences import Difference, compare
from experiments.comparison.outputs import TASKS, Measure
from experiments.comparison.systems import Run, System, read_systems
from experiments.measures.significance import LEVEL
from experiments.studies.command import Parser, exit_code, whole
from experiments.text_io import print_table
from transformer.errors import UserError

SEED = 0
DRAWS = 500  # resamples and exchanges of each comparison
GROUPS = (1, 2, 3, 5)  # seeds of a system
KINDS = ("bootstrap", "randomisation", "texts alone")

# Draws the runs of two systems.
Draw = Callable[[np.random.Generator], tuple[Sequence[Run], Sequence[Run]]]


def exchanged(runs: Sequence[Run], rng: np.random.Generator) -> tuple[list[Run], list[Run]]:
    """Returns two systems of one model: two random runs whose outputs are exchanged by the text."""
    first, second = (runs[int(i)] for i in rng.choice(len(runs), 2, replace=False))
    swap = rng.integers(2, size=(len(first.outputs.texts), 1)).astype(bool)

    def mixed(own: Run, other: Run) -> Run:
        theirs = other.outputs.counts
        counts = {
            name: np.where(swap, theirs[name], values)
            for name, values in own.outputs.counts.items()
        }
        return own._replace(outputs=own.outputs._replace(counts=counts))

    return [mixed(first, second)], [mixed(second, first)]


def same_setting(
    runs: Sequence[Run], seeds: int, rng: np.random.Generator
) -> tuple[list[Run], list[Run]]:
    """Returns two systems of as many runs, none of which is in both."""
    chosen = [runs[int(i)] for i in rng.choice(len(runs), 2 * seeds, replace=False)]
    return chosen[:seeds], chosen[seeds:]


def two_settings(
    runs: Sequence[Run], others: Sequence[Run], seeds: int, rng: np.random.Generator
) -> tuple[list[Run], list[Run]]:
    """Returns random runs of each setting."""
    first, second = (
        [own[int(i)] for i in rng.choice(len(own), seeds, replace=False)] for own in (runs, others)
    )
    return first, second


def joined(runs: Sequence[Run], measure: Measure) -> Run:
    """Returns runs as if they were one, with the mean of their counts of each text."""
    mean = np.mean([run.outputs.counts[measure.name] for run in runs], 0)
    return runs[0]._replace(outputs=runs[0].outputs._replace(counts={measure.name: mean}))


def p_values(
    measure: Measure, draw: Draw, pairs: int, draws: int = DRAWS
) -> dict[str, Float[np.ndarray, "pairs"]]:
    """Returns the p-values of comparisons of drawn systems, by `KINDS`."""
    rng = np.random.default_rng(SEED)
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(pairs):
        sides = draw(rng)
        texts = len(sides[0][0].outputs.texts)
        rows = rng.choice(texts, texts // 2, replace=False)

        def compared(*sides: Sequence[Run], rows: np.ndarray = rows) -> Difference:
            systems = [System("", list(side)) for side in sides]
            difference = compare([measure], systems, rows, draws)[0].differences[1]
            assert difference is not None, "only the baseline has none"
            return difference

        difference = compared(*sides)
        alone = difference
        if len(sides[0]) > 1:
            alone = compared(*([joined(side, measure)] for side in sides))
        every = difference.p_bootstrap, difference.p_exchange, alone.p_bootstrap
        for kind, p_value in zip(KINDS, every, strict=True):
            found[kind].append(p_value)
    return {kind: np.array(values) for kind, values in found.items()}


def settings(runs: Sequence[Run], others: Sequence[Run]) -> Iterator[tuple[str, int, Draw]]:
    """Yields the name, the seeds of a system and the draw of each kind of comparison.

    Left out are those for which there are too few runs.
    """
    yield "the same model", 1, lambda rng: exchanged(runs, rng)
    for seeds in GROUPS:
        if 2 * seeds <= len(runs):
            yield "the same setting", seeds, lambda rng, n=seeds: same_setting(runs, n, rng)
    for seeds in GROUPS:
        if seeds <= min(len(runs), len(others)):
            yield "two settings", seeds, lambda rng, n=seeds: two_settings(runs, others, n, rng)


def fraction_below(p_values: Float[np.ndarray, "pairs"]) -> tuple[float, float, float]:
    """Returns the fraction of p-values below `LEVEL`, and its 95% interval.

    Source: Clopper and Pearson 1934, "The Use of Confidence or Fiducial Limits".
    """
    from scipy import stats  # which takes half a second

    found = stats.binomtest(int((p_values < LEVEL).sum()), len(p_values))
    interval = found.proportion_ci()
    return float(found.statistic), float(interval.low), float(interval.high)


def run(arguments: Sequence[str]) -> None:
    """Draws and compares the systems of the command line, and prints the fractions.

    Raises:
      UserError: a flag is wrong, or see `read_systems`.
    """
    parser = Parser(__doc__)
    parser.add_argument("--runs", required=True, help="seeds of a setting, joined by +")
    parser.add_argument("--others", required=True, help="seeds of another setting")
    parser.add_argument("--pairs", type=whole(2, 10_000), default=200, help="of each kind")
    options = parser.parse_args(arguments)
    for flag in ("runs", "others"):
        if "," in (folders := getattr(options, flag)):
            raise UserError(f"--{flag}={folders} names several systems: join seeds by +")
    task, (first, second) = read_systems(f"{options.runs},{options.others}", None)
    if len(first.runs) < 2:
        raise UserError(f"--runs={options.runs} is one run: name two seeds or more")
    table = Table(title=f"Fraction of {options.pairs} comparisons with p < {LEVEL}, in percent")
    for column, name in enumerate(("systems", "seeds", *KINDS)):
        table.add_column(name, justify="right" if column else "left")
    measure = TASKS[task].measures[0]
    for name, seeds, draw in settings(first.runs, second.runs):
        cells = []
        for kind, values in p_values(measure, draw, options.pairs).items():
            fraction, low, high = (100 * number for number in fraction_below(values))
            shown = f"{fraction:.1f} ({low:.1f} to {high:.1f})"
            cells.append("-" if seeds == 1 and kind == KINDS[2] else shown)
        table.add_row(name, str(seeds), *cells)
    print_table(table)


if __name__ == "__main__":
    sys.exit(exit_code(run, sys.argv[1:]))
