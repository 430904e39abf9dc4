"""The mode `clean`: what cleaning keeps and drops of a training text, without training."""

import collections
import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict
from rich.table import Table
from rich.text import Text

from experiments.text_io import print_table
from transformer.data.cleaning.report import FAULTS, REASONS, CleaningReport
from transformer.data.cleaning.rules import rules_of
from transformer.data.cleaning.survey import count_faults, duplicates, survey
from transformer.data.pairs import Pair, strip
from transformer.data.parallel.files import named_files
from transformer.data.parallel.held_out_checks import HeldOutChecker
from transformer.data.parallel.sources import open_source
from transformer.data.splits import SPLITS
from transformer.errors import one_line, shorten
from transformer.storage.files import whole_file
from transformer.workdir import make_writable

FOLDER = "cleaning"  # within the one that is named
KEPT = ("kept.source.txt", "kept.target.txt")
DROPPED = "dropped.tsv"
EXAMPLES, WIDTH = 3, 60  # of each reason; characters of a side

Examples = Mapping[str, list[Pair]]


def clean(config: ConfigDict, folder: Path) -> list[Path]:
    """Writes the training pairs that cleaning keeps, and those it drops, and prints a table.

    Below `folder`/cleaning, line n of kept.source.txt and kept.target.txt is a pair; dropped.tsv
    has the columns reason, line (from one), source and target, whose tabs are blanks. Files for
    validation and test are checked and stay as they are; nothing is held out.

    Returns:
      The files.

    Raises:
      UserError: the text or a rule cannot be used.
    """
    place = folder / FOLDER
    make_writable(place)
    data, rules = config.data, rules_of(config.data)
    texts = named_files(data) if data.source == "files" else open_source(data)
    found, rules = survey(texts["train"], rules, data.seed)
    faults = duplicates(found, np.ones(len(found.faults), bool), rules)
    checker = HeldOutChecker({split: texts[split] for split in SPLITS[1:] if split in texts}, rules)
    examples = _write(texts["train"], faults.tobytes(), checker, place)
    _print(count_faults(faults), examples)
    for split, own in checker.reports().items():
        for line in own.describe(split):
            print(line)
    return [place / name for name in (*KEPT, DROPPED)]


def _write(pairs: Iterable[Pair], faults: bytes, checker: HeldOutChecker, place: Path) -> Examples:
    """Writes pairs to where their faults say; returns the first of each fault."""
    examples: dict[str, list[Pair]] = collections.defaultdict(list)
    with contextlib.ExitStack() as files:
        sides = [files.enter_context(whole_file(place / name)) for name in KEPT]
        dropped = files.enter_context(whole_file(place / DROPPED))
        dropped.write("reason\tline\tsource\ttarget\n")
        for number, (pair, fault) in enumerate(zip(map(strip, pairs), faults, strict=True), 1):
            if not fault:
                checker.check(pair)
                for file, text in zip(sides, pair[:2], strict=True):
                    file.write(f"{text}\n")
                continue
            source, target = (text.replace("\t", " ") for text in pair[:2])
            dropped.write(f"{FAULTS[fault]}\t{number}\t{source}\t{target}\n")
            if len(examples[FAULTS[fault]]) < EXAMPLES:
                examples[FAULTS[fault]].append(pair)
    return examples


def _print(report: CleaningReport, examples: Examples) -> None:
    print(report)
    table = Table("reason", "pairs", "share", "examples")
    for fault, pairs in sorted(examples.items(), key=lambda item: FAULTS.index(item[0])):
        count = getattr(report, fault)
        shown = (" -> ".join(one_line(shorten(text, WIDTH)) for text in p[:2]) for p in pairs)
        cells = REASONS[fault], f"{count:,}", f"{count / report.total:.2%}", "\n".join(shown)
        table.add_row(*map(Text, cells))
    if examples:
        print_table(table)
