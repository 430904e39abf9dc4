"""Paths of the files that a config names."""

import difflib
import os
import re
import shlex
from pathlib import Path

from ml_collections import ConfigDict

from transformer.data.files.arrow import SHARD, is_dataset
from transformer.data.files.catalogue import CATALOGUE
from transformer.data.files.text import SUFFIXES
from transformer.data.pairs import SPLITS
from transformer.errors import UserError
from transformer.files import LAUNCH

PART = re.compile(r"(train|test|val|dev)(?:ing|id|idation)?(?:\..*)?")  # a file name of a split


def corpus_folder(settings: ConfigDict) -> Path:
    """Returns the base folder of a config's files: its own one, or that of a fetched corpus."""
    if settings.path or not settings.fetch:
        return Path(settings.path or ".").expanduser().absolute()
    cache = Path(settings.cache_dir or "~/.cache/transformer").expanduser().absolute()
    return cache / "corpora" / settings.fetch


def split_sources(settings: ConfigDict) -> dict[str, str]:
    """Returns the file or folder name of each split, relative to the corpus folder; '' for none.

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
        elif not entry.startswith((".", "__MACOSX")) and (folder / entry).is_dir():
            return names
    if "train" in parts:
        names = parts | {split: name for split, name in names.items() if name and split != "train"}
    return {split: names.get(split, "") for split in SPLITS}


def locate(settings: ConfigDict, key: str, part: str | None = None, folders: bool = False) -> Path:
    """Returns the full path of the file or data set in `data.<key>`; raises UserError for others.

    With `folders`, any folder is accepted.

    The name may lack a compression suffix; `train` may be a prefix of shards, such as
    `train-00000-of-00002.parquet`. A `part` replaces the name in the key.
    """
    name = getattr(settings, key) if part is None else part
    if not name:
        raise UserError(
            f"config.data.{key} is empty: name a text file, below config.data.path or in full"
        )
    path = corpus_folder(settings) / Path(name).expanduser()
    if not path.parent.is_dir():
        hint = _fetch_command(settings, name) or "check config.data.path"
        raise UserError(f"data.{key}={name!r}: {path.parent} is not a folder: {hint}")
    for file in (path, *(path.with_name(path.name + end) for end in SUFFIXES)):
        if file.is_file():
            return file
    if is_dataset(path) or (folders and path.is_dir()):
        return path
    if path.is_dir():
        what = "a folder without files that end in .tmx, .parquet or .arrow"
        raise UserError(f"data.{key}={name!r}: {path} is {what}: name a text file in it")
    near = difflib.get_close_matches(path.name, os.listdir(path.parent), n=1)
    hint = f"did you mean {near[0]!r}? set" if near else "check config.data.path and"
    hint = _fetch_command(settings, name) or f"{hint} config.data.{key}"
    raise UserError(f"data.{key}={name!r}: {path} is not a file: {hint}")


def _fetch_command(settings: ConfigDict, name: str) -> str:
    """Returns the command that fetches a config's corpus; '' if it has no file of this name."""
    downloads = CATALOGUE[settings.fetch].downloads if settings.fetch else ()
    outputs = {output for download in downloads for output in download.outputs}
    if outputs.isdisjoint({name, *(name + end for end in SUFFIXES)}):
        return ""
    keys = {"path": settings.path, "cache_dir": settings.cache_dir, "fetch": settings.fetch}
    flags = [f"--config.data.{key}={shlex.quote(value)}" for key, value in keys.items() if value]
    return f"download it with `{LAUNCH} --mode=fetch {' '.join(flags)}`"
