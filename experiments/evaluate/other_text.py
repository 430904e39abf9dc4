"""Reads other texts to score a run on: files, sacreBLEU test sets, or generated lines."""

import hashlib
import json
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from transformer import tasks
from transformer.data.corpora import Tagger
from transformer.data.documents import TextFile
from transformer.data.files.arrow import is_dataset
from transformer.data.files.table import ROWS_ALONE, describe_rows, format_of
from transformer.data.files.text import SUFFIXES, read_lines
from transformer.data.held_out import HELD_OUT_FOLDER
from transformer.data.labelled import labelled_table
from transformer.data.pairs import Pair
from transformer.data.parallel.texts import TwoFiles, pair_table
from transformer.data.pictures.sources import CAPTIONS, look_of, read_table
from transformer.errors import UserError, one_line, shorten
from transformer.runs.run import Run
from transformer.tasks.base import DOCUMENTS, LABELLED, PAIRS, PICTURES
from transformer.tasks.classification import load_labels
from transformer.tasks.pair_scores import choose_tokenizer, further_references, refuse_blank
from ..process.modes import Options
from ..results.run_tables import CONTRASTS, GENERATED
from .behaviour import make_pairs

logger = logging.getLogger(__name__)

OF_TRANSLATORS = ("references", "source_tag")  # flags that are only for translation
PREFIX = "sacrebleu:"


class Given(NamedTuple):
    """A text to score a run on."""

    name: str  # default name of the evaluation
    files: list[str]  # paths of the files that were read
    text: Any  # in the form that `Task.from_folder` accepts
    size: str  # number of sentences, documents or texts, for log messages
    digest: str  # hash of the whole text, 16 hexadecimal digits


def read_given(name: str, run: Run, options: Options) -> Given:
    """Returns the text that the flags specify, after validating it.

    `name` is a file, a sacreBLEU test set, or in `GENERATED`.
    """
    config, folder = run.config, run.folder
    task = tasks.REGISTRY[config.task]
    if task.reads == PAIRS:
        return _read_pairs(name, run, options)
    rule = f"is for config.task=translation, and {folder} is a run of config.task={config.task}"
    options.refuse(OF_TRANSLATORS, f"{rule}: leave it out")
    path = _check_named_file(name, "--input", task.reads == LABELLED)
    items: Sequence[Any]
    if task.reads == DOCUMENTS:
        documents, unit = TextFile(path, config.data), "documents"
        _print_rows(documents.rows)
        text = items = list(documents)
    elif task.reads == PICTURES:
        look, unit = look_of(config.model, config.data), "pictures"
        text = read_table(path, config.data, look, task.label_type)
        items = text.items
    else:
        rows, unit = labelled_table(path, config.data), "texts"
        _print_rows(rows)
        text = items = list(rows)
    if task.reads != DOCUMENTS and task.label_type != CAPTIONS:
        labels = load_labels(folder)
        if unknown := dict.fromkeys(repr(x.label) for x in items if x.label not in labels):
            raise UserError(
                f"{path} has labels that the classifier never saw: {shorten(', '.join(unknown))}; "
                f"its classes are {shorten(', '.join(map(repr, labels)))}: correct them, or leave "
                "these texts out"
            )
    return _given_text(name, [path], text, unit, items)


def _read_pairs(name: str, run: Run, options: Options) -> Given:
    if name in GENERATED:
        place = Path("grammar") if name == CONTRASTS else run.folder / HELD_OUT_FOLDER
        pairs = make_pairs(run, name)
        return _given_text(name, [place], pairs, "lines", [pair[:3] for pair in pairs])
    source, *targets = files = _pair_files(name, options.references)
    config, pairs = run.config, []
    tag = Tagger(config.data, options.source_tag)
    tables: list[Iterable[Pair]] = [TwoFiles(source, target) for target in targets]
    if not targets:  # the file has one pair per row
        has_columns = format_of(source) in ROWS_ALONE or format_of(source) == ".csv"
        if not has_columns and "\t" not in next(read_lines(source), "\t"):
            raise UserError(
                f"--input={source} has no tab in its first line: name a file of rows, "
                "source<TAB>reference, or the references of these sources with --references"
            )
        tables = [pair_table(source, config.data)]
        _print_rows(tables[0])
    for number, rows in enumerate(zip(*tables, strict=True), 1):
        place = f"{source}, sentence {number}"
        text = refuse_blank(tag(rows[0].source, place), place)
        places = f"{place}, its reference", *(f"{t}, sentence {number}" for t in targets[1:])
        first, *more = map(refuse_blank, (row.target for row in rows), places)
        pairs.append(Pair(text, first, None, (*more,)))
    logger.info(choose_tokenizer(config.evaluate, [pair.target for pair in pairs])[1])
    columns = [pair[:3] for pair in pairs], *further_references(pairs)
    return _given_text(name, files, pairs, "sentences", *columns)


def _pair_files(name: str, references: str | None) -> list[Path]:
    """Returns the source file and the reference files, or a single file that contains both."""
    if name.startswith(PREFIX):
        if references is not None:
            raise UserError(f"--input={name} has its own references: leave out --references")
        source, targets = fetch_named_set(name)
        return [source, *targets]
    files = [_check_named_file(name, "--input")]
    if references is None:
        return files
    files += [_check_named_file(own, "--references") for own in references.split(",")]
    for path in files:
        if format_of(path) in ROWS_ALONE:
            raise UserError(
                f"{path} is a file of rows: with --references, name files with one sentence per "
                "line; or name a file with both sides in its rows, and leave out --references"
            )
    return files


def _print_rows(rows: Any) -> None:
    """Logs which columns are read, and how many malformed rows are skipped."""
    for line in describe_rows([rows]):
        logger.warning(line)


def _check_named_file(name: str, flag: str, folders: bool = False) -> Path:
    """Returns the path that a flag gives: a file, a data set or, if `folders` is set, a folder."""
    path = Path(name).expanduser()
    if not name or not (path.is_file() or is_dataset(path) or (folders and path.is_dir())):
        raise UserError(f"{flag}={name} is not a file: name the text to score")
    return path


def _given_text(
    name: str, files: Sequence[Path], text: Any, unit: str, *columns: Sequence[Any]
) -> Given:
    if not columns[0]:
        raise UserError(f"{files[0]} is empty: name a file with a text to score")
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


def fetch_named_set(flag: str) -> tuple[Path, list[Path]]:
    """Returns the source and reference files of a test set, such as `sacrebleu:wmt14/full,en-de`.

    The files are in sacreBLEU's cache folder: the value of the environment variable SACREBLEU, or
    `~/.sacrebleu` by default. A missing test set is downloaded.
    """
    from sacrebleu.dataset import DATASETS  # importing it takes a tenth of a second

    name, _, languages = flag.removeprefix(PREFIX).rpartition(",")
    if name not in DATASETS or languages not in DATASETS[name].langpairs:
        raise UserError(
            f"--input={flag}: sacreBLEU has no such test set: `sacrebleu --list` shows all; write "
            f"its name and its languages, such as --input={PREFIX}wmt14/full,en-de"
        )
    try:
        source = DATASETS[name].get_source_file(languages)
        references = DATASETS[name].get_reference_files(languages)
    except (Exception, SystemExit) as error:  # sacreBLEU exits if a file is damaged
        reason = one_line(str(error)) or type(error).__name__
        raise UserError(
            f"--input={flag}: sacreBLEU cannot fetch it ({shorten(reason)}): write its files on a "
            f"machine with a network, with `sacrebleu -t {name} -l {languages} --echo src` and "
            "`--echo ref`, and name them with --input=source.txt --references=reference.txt"
        ) from None
    return Path(source), list(map(Path, references))
