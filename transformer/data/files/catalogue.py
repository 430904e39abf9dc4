"""Public corpora that can be fetched, from `catalogue.toml`: addresses, checksums, licences."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Download(NamedTuple):
    """A file to download.

    Attributes:
      name: the file name; if it is not an archive, also the name of the file that is kept.
      urls: alternative addresses; the first one that answers is used.
      checksum: `sha256:` or `md5:` and hexadecimal digits; '' if none is published.
      members: the archive members that are kept, and their new names.
      classes: table names (label<TAB>text rows, shuffled), and the archive folders that each table
        is made from: one folder per class, with one text per file.
      talks: names of files of lowercased lines, and the members of an archive of TED talks that
        they are made from. `valid.*` has every 23rd line, and `train.*` all others.
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
    """A public corpus: its total download size as text, and its keys of `config.data`."""

    title: str
    licence: str
    citation: str
    size: str
    downloads: tuple[Download, ...]
    settings: Mapping[str, str]


def _read_catalogue() -> dict[str, PublicCorpus]:
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    languages, pattern = tables.pop("languages"), json.dumps(tables.pop("tatoeba"))
    for code, language in languages.items():
        text = pattern.replace("{code}", code).replace("{language}", language)
        tables[f"tatoeba_{code}"] = json.loads(text)
    for table in tables.values():
        table["downloads"] = tuple(Download(**download) for download in table["downloads"])
    return {name: PublicCorpus(**table) for name, table in tables.items()}


CATALOGUE = _read_catalogue()
