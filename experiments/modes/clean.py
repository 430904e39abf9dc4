"""The `clean` mode: shows which training pairs cleaning keeps and drops, without training."""

import collections
import contextlib
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from ml_collections import ConfigDict
from rich.table import Table

from transformer.data.cleaning import FAULTS, REASONS, CleaningReport, rules_of
from transformer.data.corpora import corpora_of, naming
from transformer.data.pairs import SPLITS, Pair, canonical
from transformer.data.parallel.sources import check_files, named_files, open_source
from transformer.data.parallel.training_pairs import (
    check_held_out,
    count_faults,
    duplicates,
    survey,
)
from transformer.errors import one_line, shorten
from transformer.files import whole_file
from transformer.runs.run import Run
from transformer.runs.workdir import check_folder
from ..process.text_io import print_table

logger = logging.getLogger(__name__)

CLEANING_FOLDER = "cleaning"  # in the run's folder
KEPT = ("kept.source.txt", "kept.target.txt")
DROPPED_FILE = "dropped.tsv"
EXAMPLES, WIDTH = 3, 60  # examples per reason; characters per side


def clean(run: Run) -> Iterator[Path]:
    """Writes files of the training pairs that cleaning keeps and drops, and prints a table.

    In `folder`/cleaning, line n of kept.source.txt and line n of kept.target.txt are a pair.
    dropped.tsv has the columns reason, pair (1-based number), source and target; tabs in texts are
    replaced by spaces. If there are several corpora, each has a subfolder, with the sides as in the
    corpus files. Validation and test files are checked but not changed. Nothing is held out.
    """
    check_folder(run.folder)
    place, corpora = run.folder / CLEANING_FOLDER, corpora_of(run.config.data)
    if not corpora:
        yield from _clean_pairs(run.config.data, place)
    for corpus in corpora:
        print(f"{corpus.name}:")
        with naming(corpus):
            yield from _clean_pairs(corpus.data, place / corpus.name)


def _clean_pairs(data: ConfigDict, place: Path) -> list[Path]:
    """Cleans one corpus; returns the files written to `place`."""
    rules = rules_of(data)  # rejects invalid keys before the text is read
    if data.source == "files":
        texts = named_files(data)
        for line in check_files(texts):
            logger.warning(line)
    else:
        texts = open_source(data)
    place.mkdir(parents=True, exist_ok=True)
    facts = survey(texts["train"], rules, data.seed)
    faults = duplicates(facts, rules)
    _print_report(count_faults(faults), _write_pairs(texts["train"], faults.tobytes(), place))
    held_out = {split: texts[split] for split in SPLITS[1:] if split in texts}
    checks = check_held_out(held_out, facts.exact[faults == 0], None)
    for split, check in checks.items():
        for line in check.describe(split):
            print(line)
    return [place / name for name in (*KEPT, DROPPED_FILE)]


def _write_pairs(pairs: Iterable[Pair], faults: bytes, place: Path) -> dict[str, list[Pair]]:
    """Writes kept and dropped pairs to files; returns the first dropped pairs for each fault."""
    examples: dict[str, list[Pair]] = collections.defaultdict(list)
    with contextlib.ExitStack() as files:
        sides = [files.enter_context(whole_file(place / name)) for name in KEPT]
        dropped = files.enter_context(whole_file(place / DROPPED_FILE))
        dropped.write("reason\tpair\tsource\ttarget\n")
        for number, (pair, fault) in enumerate(zip(map(canonical, pairs), faults, strict=True), 1):
            if not fault:
                for file, text in zip(sides, pair[:2], strict=True):
                    file.write(f"{text}\n")
                continue
            dropped.write(f"{FAULTS[fault]}\t{number}\t{pair.source}\t{pair.target}\n")
            if len(examples[FAULTS[fault]]) < EXAMPLES:
                examples[FAULTS[fault]].append(pair)
    return examples


def _print_report(report: CleaningReport, examples: dict[str, list[Pair]]) -> None:
    print(report)
    table = Table("reason", "pairs", "fraction", "examples")
    for fault, pairs in sorted(examples.items(), key=lambda item: FAULTS.index(item[0])):
        count = report.counts[fault]
        shown = (" -> ".join(one_line(shorten(text, WIDTH)) for text in p[:2]) for p in pairs)
        cells = REASONS[fault], f"{count:,}", f"{count / report.total:.2%}", "\n".join(shown)
        table.add_row(*cells)
    if examples:
        print_table(table)
