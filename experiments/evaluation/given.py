"""Another text than a run's to score it on: its files, and the errors in them."""

import collections
import hashlib
import json
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from experiments.evaluation.behaviour import make_cases
from experiments.evaluation.named_sets import PREFIX, fetch_named_set
from experiments.options import Options
from experiments.report.numbers import BEHAVIOUR
from transformer.data.corpora import Tagger
from transformer.data.documents.sources import text_file
from transformer.data.files.arrow import is_dataset
from transformer.data.files.compression import SUFFIXES
from transformer.data.files.pair_files import ROWS_ALONE, TwoFiles, pair_table
from transformer.data.files.table import describe_rows, format_of
from transformer.data.files.text import read_lines
from transformer.data.held_out import FOLDER
from transformer.data.labelled.sources import labelled_table
from transformer.data.pairs import Pair
from transformer.errors import UserError, shorten
from transformer.tasks.class_files import load_labels
from transformer.tasks.pair_scores import GivenPairs, refuse_blank

logger = logging.getLogger(__name__)

SHOWN = 5  # labels that a message quotes
OF_TRANSLATORS = ("references", "source_tag")  # flags


class Given(NamedTuple):
    """A text to score a run on.

    Attributes:
      name: of it, if the user gives none.
      files: that were read.
      text: as `Task.from_folder` takes it.
      size: its number of sentences, documents or texts, for people.
      digest: of all of it, 16 hexadecimal digits.
    """

    name: str
    files: list[str]
    text: Any
    size: str
    digest: str


def read_given(name: str, config: ConfigDict, folder: Path, options: Options) -> Given:
    """Returns the text that the flags name.

    Args:
      name: of its file, of one of sacreBLEU's test sets, or `BEHAVIOUR`.
      config: the run's, with the fields of the file.
      folder: the run's.

    Raises:
      UserError: a file is missing, empty, damaged or not UTF-8, or has another number of lines; a
        sentence is blank or has no tag that it needs; a label is unknown; or a flag is for
        translators.
    """
    if config.task != "translation":
        for flag in OF_TRANSLATORS:
            if (value := getattr(options, flag)) is not None:
                raise UserError(
                    f"--{flag}={value} is for config.task=translation, and {folder} is a run of "
                    f"config.task={config.task}: leave it out"
                )
    return READERS[config.task](name, config, folder, options)


def _read_pairs(name: str, config: ConfigDict, folder: Path, options: Options) -> Given:
    if name == BEHAVIOUR:
        pairs = [case.pair for case in make_cases(folder, config)]
        return _given(name, [folder / FOLDER], GivenPairs(pairs), "lines", pairs)
    source, *targets = files = _pair_files(name, options.references)
    tag, pairs = Tagger(config.data, options.source_tag), []
    first = TwoFiles(source, targets[0]) if targets else _table(source, config.data)
    for number, pair in enumerate(first, 1):
        place = f"{source}, sentence {number}"
        read = refuse_blank(tag(pair.source, place), place)
        pairs.append(Pair(read, refuse_blank(pair.target, f"{place}, its reference")))
    further = [
        [
            refuse_blank(pair.target, f"{target}, sentence {number}")
            for number, pair in enumerate(TwoFiles(source, target), 1)
        ]
        for target in targets[1:]
    ]
    if not pairs:
        raise _empty(source)
    return _given(name, files, GivenPairs(pairs, further), "sentences", pairs, *further)


def _pair_files(name: str, references: str | None) -> list[Path]:
    """The file of the sources and those of the references, or the only one."""
    if name.startswith(PREFIX):
        if references is not None:
            raise UserError(f"--input={name} has its own references: leave out --references")
        source, targets = fetch_named_set(name)
        return [source, *targets]
    if references is None:
        return [_located(name, "--input")]
    files = [_located(name, "--input")]
    files += [_located(own, "--references") for own in references.split(",")]
    for path in files:
        if format_of(path) in ROWS_ALONE:
            raise UserError(
                f"{path} is a file of rows: with --references, name files with one sentence per "
                "line; or name a file with both sides in its rows, and leave out --references"
            )
    return files


def _table(path: Path, data: ConfigDict) -> Iterable[Pair]:
    """The pairs of a file of rows."""
    if format_of(path) not in ROWS_ALONE:
        line = next(read_lines(path), "\t")
        if format_of(path) != ".csv" and "\t" not in line:
            raise UserError(
                f"--input={path} has no tab in its first line: name a file of rows, "
                "source<TAB>reference, or the references of these sources with --references"
            )
    return _whole(pair_table(path, data))


def _read_documents(name: str, config: ConfigDict, folder: Path, options: Options) -> Given:
    path = _located(name, "--input")
    documents = text_file(path, config.data)
    _whole(documents.rows)
    found = list(documents)
    if not found:
        raise _empty(path)
    return _given(name, [path], found, "documents", found)


def _read_labelled(name: str, config: ConfigDict, folder: Path, options: Options) -> Given:
    path = _located(name, "--input")
    texts = list(_whole(labelled_table(path, config.data, "--input")))
    if not texts:
        raise _empty(path)
    labels = load_labels(folder)
    unknown = collections.Counter(text.label for text in texts if text.label not in labels)
    if unknown:
        named = _few([f"{label[:40]!r} of {n:,} texts" for label, n in unknown.items()])
        raise UserError(
            f"{path} has labels that the classifier never saw: {named}; its classes are "
            f"{_few(list(map(repr, labels)))}: correct them, or leave these texts out"
        )
    return _given(name, [path], texts, "texts", texts)


READERS = {
    "translation": _read_pairs,
    "language_model": _read_documents,
    "classification": _read_labelled,
}


def _located(name: str, flag: str) -> Path:
    """The file or the data set that a flag names."""
    path = Path(name).expanduser()
    if not name or not (path.is_file() or is_dataset(path)):
        raise UserError(f"{flag}={name}: there is no such file: name the text to score")
    return path


def _whole(rows: Any) -> Any:
    """A file of rows; says which columns are read, and how many broken rows are left out."""
    for line in describe_rows([rows]):
        logger.warning(line)
    return rows


def _empty(path: Path) -> UserError:
    return UserError(f"{path} is empty: name a file with a text to score")


def _few(shown: Sequence[str]) -> str:
    more = f" and {len(shown) - SHOWN:,} more" if len(shown) > SHOWN else ""
    return shorten(", ".join(shown[:SHOWN])) + more


def _given(
    name: str, files: Sequence[Path], text: Any, unit: str, *columns: Sequence[Any]
) -> Given:
    digest = hashlib.sha256()
    for row in zip(*columns, strict=True):
        digest.update(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    if name.startswith(PREFIX):
        name = name.removeprefix(PREFIX).replace(",", ".")
    else:
        packed = next((end for end in SUFFIXES if name.endswith(end)), "")
        name = Path(name.removesuffix(packed)).stem
    size = f"{len(columns[0]):,} {unit}"
    return Given(name, list(map(str, files)), text, size, digest.hexdigest()[:16])
