"""Public corpora that can be fetched, from `catalogue.toml`: addresses, checksums, licences."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Download(NamedTuple):
    """A file to download.

    Attributes:
      name: of the file; if it is not an archive, also of the file that is kept.
      urls: its addresses, of which the first that answers is taken.
      checksum: `sha256:` or `md5:` and hexadecimal digits; '' if none is published.
      members: of an archive, the files that are kept, and their names then.
      classes: the names of tables, label<TAB>text, shuffled, and the folders of an archive that
        they are made of: one for each class, with a text in each file.
      talks: the names of files of lowercased lines, and the files of an archive of TED talks that
        they are made of. `valid.*` has every 23rd line of them, and `train.*` all others.
    """

    name: str
    urls: tuple[str, ...]
    checksum: str = ""
    members: Mapping[str, str] = {}
    classes: Mapping[str, tuple[str, ...]] = {}
    talks: Mapping[str, tuple[str, ...]] = {}

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the files that are kept."""
        return (*self.members.values(), *self.classes, *self.talks) or (self.name,)


class PublicCorpus(NamedTuple):
    """A public corpus: the size of all downloads, for people, and keys of `config.data`."""

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
