"""The `clean` mode: shows which training pairs cleaning keeps and drops, without training."""

import collections
import contextlib
import itertools
import logging
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from ml_collections import ConfigDict
from rich.table import Table

from transformer.data.characters import split_words
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
from transformer.errors import UserError, one_line, shorten
from transformer.files import whole_file
from transformer.runs.run import Run
from transformer.runs.workdir import check_folder
from ..process.modes import Options
from ..process.text_io import print_table

logger = logging.getLogger(__name__)

CLEANING_FOLDER = "cleaning"  # in the run's folder
KEPT = ("kept.source.txt", "kept.target.txt")
DROPPED_FILE, LINKS_FILE = "dropped.tsv", "links.txt"
EXAMPLES, WIDTH = 3, 60  # examples per reason; characters per side
Links = set[tuple[int, ...]]


def clean(run: Run, options: Options) -> Iterator[Path]:
    """Writes files of the training pairs that cleaning keeps and drops, and prints a table.

    In `folder`/cleaning, line n of kept.source.txt and line n of kept.target.txt are a pair.
    dropped.tsv has the columns reason, pair (1-based number), source and target; tabs in texts are
    replaced by spaces. If there are several corpora, each has a subfolder, with the sides as in the
    corpus files. Validation and test files are checked but not changed. Nothing is held out.

    With `--aligner`, links.txt has the word links of each pair of the training text, for
    `data.train_links`; its lines for dropped pairs are blank.
    """
    check_folder(run.folder)
    place, corpora = run.folder / CLEANING_FOLDER, corpora_of(run.config.data)
    if not corpora:
        yield from _clean_pairs(run.config.data, place, options.aligner)
    for corpus in corpora:
        print(f"{corpus.name}:")
        with naming(corpus):
            yield from _clean_pairs(corpus.data, place / corpus.name, options.aligner)


def _clean_pairs(data: ConfigDict, place: Path, aligner: str | None) -> list[Path]:
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
    files = [place / name for name in (*KEPT, DROPPED_FILE)]
    return [*files, _align(texts["train"], faults.tobytes(), place, aligner)] if aligner else files


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


# -- word links


def _align(pairs: Iterable[Pair], faults: bytes, place: Path, aligner: str) -> Path:
    """Writes the word links that eflomal finds in the pairs without faults; returns the path."""
    if not (program := shutil.which(aligner)):
        raise UserError(
            f"--aligner={aligner} is not a program: install eflomal (pip install eflomal, in an "
            "environment of its own), and name its eflomal-align with its path"
        )
    with tempfile.TemporaryDirectory() as folder:
        texts, links = [Path(folder, name) for name in "st"], [Path(folder, name) for name in "fr"]
        for side, path in enumerate(texts):
            with path.open("w", encoding="utf-8") as file:
                for pair, fault in zip(map(canonical, pairs), faults, strict=True):
                    words = () if fault else split_words(pair[:2][side])
                    file.write(" ".join("_".join(w.lower().split()) for w in words) + "\n")
        flags = itertools.chain(*zip(("-s", "-t", "-f", "-r"), (*texts, *links), strict=True))
        ended = subprocess.run([program, *flags], capture_output=True, encoding="utf-8")
        if ended.returncode:
            raise UserError(f"--aligner={aligner} failed: {one_line(ended.stderr[-200:])}")
        with whole_file(place / LINKS_FILE) as file:
            for lines in zip(*(path.read_text().splitlines() for path in links), strict=True):
                sides = ({tuple(map(int, link.split("-"))) for link in x.split()} for x in lines)
                joined = (f"{i}-{j}" for i, j in sorted(symmetrize(*sides)))
                file.write(" ".join(joined) + "\n")
    return place / LINKS_FILE


def symmetrize(forward: Links, reverse: Links) -> Links:
    """Returns the links of both directions, joined by grow-diag-final-and.

    Source: Koehn et al. 2003, "Statistical Phrase-Based Translation", section 3; the final step
    with "and": Koehn et al. 2005, "Edinburgh System Description for the 2005 IWSLT".
    """
    links, union, size = forward & reverse, forward | reverse, -1

    def is_free(link: tuple[int, ...], side: int) -> bool:
        return all(other[side] != link[side] for other in links)

    while size < len(links):
        size = len(links)
        for i, j in sorted(links):
            around = {(a, b) for a in (i - 1, i, i + 1) for b in (j - 1, j, j + 1)}
            for link in sorted(around & union):
                if is_free(link, 0) or is_free(link, 1):
                    links.add(link)
    for link in (*sorted(forward), *sorted(reverse)):
        if is_free(link, 0) and is_free(link, 1):
            links.add(link)
    return links
