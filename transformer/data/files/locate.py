"""Locations of corpus files: public corpora that can be downloaded, and config paths."""

import json
import os
import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from transformer.data.files.arrow import SHARD, is_dataset
from transformer.data.files.rows import listed
from transformer.data.files.text import SUFFIXES, plain_name
from transformer.data.pairs import SPLITS
from transformer.errors import UserError
from transformer.files import LAUNCH

PART = re.compile(r"(train|test|val|dev)(?:ing|id|idation)?(?:\..*)?")  # the file name of a split
HIDDEN = (".", "__MACOSX")  # prefixes of file names left by archives and editors
NO_CLASSES = ("unsup", "unlabel")  # prefixes of folders without labels


# -- public corpora


class Download(NamedTuple):
    """A file to download.

    Attributes:
      name: the file name; a file that is not an archive is kept under this name.
      urls: alternative URLs; the first one that responds is used.
      checksum: `sha256:` or `md5:` with hexadecimal digits, or '' if no checksum is published.
      members: new file names, keyed by the archive member to keep.
      classes: archive folders, keyed by the table (shuffled label<TAB>text rows) to build from
        them. There is one folder per class, with one text per file.
      talks: members of a TED talk archive, keyed by the file of lowercased lines to build from
        them. `valid.*` has every 23rd line, and `train.*` has all other lines.
    """

    name: str
    urls: tuple[str, ...]
    checksum: str = ""
    members: Mapping[str, str] = {}
    classes: Mapping[str, tuple[str, ...]] = {}
    talks: Mapping[str, tuple[str, ...]] = {}

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the files that are kept."""
        return (*self.members.values(), *self.classes, *self.talks) or (self.name,)


class PublicCorpus(NamedTuple):
    """A public corpus, with its total download size as text and its `config.data` settings."""

    title: str
    licence: str
    citation: str
    size: str
    downloads: tuple[Download, ...]
    settings: Mapping[str, str]


def _read_catalogue() -> dict[str, PublicCorpus]:
    tables = tomllib.loads(Path(__file__).with_name("catalogue.toml").read_text("utf-8"))
    languages, pattern = tables.pop("languages"), json.dumps(tables.pop("tatoeba"))
    for code, language in languages.items():
        text = pattern.replace("{code}", code).replace("{language}", language)
        tables[f"tatoeba_{code}"] = json.loads(text)
    for table in tables.values():
        table["downloads"] = tuple(Download(**download) for download in table["downloads"])
    return {name: PublicCorpus(**table) for name, table in tables.items()}


CATALOGUE = _read_catalogue()


# -- paths of a config


def corpus_folder(settings: ConfigDict) -> Path:
    """Returns the base folder of a config's files: `data.path`, or the downloaded corpus."""
    if settings.path or not settings.fetch:
        return Path(settings.path or ".").expanduser().absolute()
    cache = Path(settings.cache_dir or "~/.cache/transformer").expanduser().absolute()
    return cache / "corpora" / settings.fetch


def split_sources(settings: ConfigDict) -> dict[str, str]:
    """Returns each split's path relative to the corpus folder, or '' for a split without a file.

    If the training source is a folder, the splits are its entries `train`, `test` and `validation`,
    with any suffix, unless the folder also has subfolders with other names.
    """
    names = {split: settings[f"{split}_source"] for split in SPLITS}
    if names["train"] == "." and not settings.path and not settings.fetch:
        raise UserError("config.data.path is empty: name the file or the folder of the corpus")
    folder, parts = corpus_folder(settings) / Path(names["train"]).expanduser(), {}
    for entry in sorted(os.listdir(folder)) if folder.is_dir() else ():
        name = shard[1] if (shard := SHARD.fullmatch(entry)) else entry
        if match := PART.fullmatch(name.lower()):
            split = "validation" if match[1] in ("val", "dev") else match[1]
            parts.setdefault(split, os.path.join(names["train"], name))
        elif not entry.startswith(HIDDEN) and (folder / entry).is_dir():
            return names
    if "train" in parts:
        names = parts | {split: name for split, name in names.items() if name and split != "train"}
    return {split: names.get(split, "") for split in SPLITS}


def locate(settings: ConfigDict, key: str, part: str | None = None, folders: bool = False) -> Path:
    """Returns the full path of the file or data set given by `data.<key>`.

    Raises UserError if it does not exist. If `folders` is true, any folder is accepted.

    The name may omit a compression suffix, and may be a shard prefix, such as `train` for
    `train-00000-of-00002.parquet`. `part` overrides the name in the config.
    """
    name = getattr(settings, key) if part is None else part
    if not name:
        raise UserError(
            f"config.data.{key} is empty: name a text file, below config.data.path or in full"
        )
    path = corpus_folder(settings) / Path(name).expanduser()
    for file in (path, *(path.with_name(path.name + end) for end in SUFFIXES)):
        if file.is_file():
            return file
    if is_dataset(path) or (folders and path.is_dir()):
        return path
    what, fix = "is not a file", f"check config.data.path and config.data.{key}"
    if path.is_dir():
        what = "is a folder without files that end in .tmx, .parquet or .arrow"
        fix = "name a text file in it"
    elif settings.fetch:
        fix += f", or download {settings.fetch} with `{LAUNCH} --mode=fetch` and these flags"
    elif key == "train_target":
        fix += f", or set config.data.{key}='' if {settings.train_source} has both sides"
    raise UserError(f"data.{key}={name!r}: {path} {what}: {fix}")


def class_files(folder: Path, endings: Collection[str]) -> tuple[list[tuple[str, Path]], str]:
    """Returns sorted (class, path) pairs of files in class folders, and a note on other files.

    Files may be in subfolders of their class folder. The note counts all other files.
    """
    files, others = [], []
    for entry in sorted(folder.iterdir()):
        is_class = entry.is_dir() and not entry.name.lower().startswith(NO_CLASSES)
        for path in sorted(entry.rglob("*")) if entry.is_dir() else [entry]:
            parts = path.relative_to(folder).parts
            is_item = is_class and Path(plain_name(path.name)).suffix in endings
            is_hidden = any(part.startswith(HIDDEN) for part in parts)
            if is_item and not is_hidden and path.is_file():
                files.append((entry.name, path))
            elif not path.is_dir():
                others.append("/".join(parts))
    return files, f"; {len(others):,} other files are left out: {listed(others)}" * bool(others)
