"""Settings and source tags for training on several parallel corpora (`data.corpora`).

A tag before a source sentence indicates the corpus or the target language.
"""

import contextlib
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from transformer.config import assign
from transformer.config.keys import having
from transformer.data.characters import canonicalize
from transformer.data.tokenizer import RESERVED
from transformer.errors import UserError

# The corpus keys that are not in `config.data`, with their default values.
OWN = {"name": "", "weight": 1.0, "source_tag": "", "reverse": False}
NAME = re.compile(r"[a-z0-9_-]+")
ENDING = re.compile(r"(?:.*\.)?([a-z]{2,3})")  # language code in train.de or translation.de
COMPRESSED_ENDING = re.compile(r"\.(gz|xz|zst)$")


class CorpusSettings(NamedTuple):
    """The settings of one corpus.

    Attributes:
      weight: sampling weight; see `mix`.
      tag: space-separated tokens that precede each source sentence, or '' for no tag.
      reverse: whether source and target are swapped.
      data: `config.data` with the values that this corpus overrides, and without `corpora`.
    """

    name: str
    weight: float
    tag: str
    reverse: bool
    data: ConfigDict


def corpora_of(data: ConfigDict) -> list[CorpusSettings]:
    """Returns the validated corpora in `config.data`, or an empty list if there are none."""
    corpora: list[CorpusSettings] = []
    for number, values in enumerate(data.corpora):
        place = f"config.data.corpora[{number}]"
        if not isinstance(values, Mapping):
            raise UserError(
                f"{place}={values!r} is not a dict: give the keys of config.data that the corpus "
                'changes, such as {"name": "news", "train_source": "news.en"}'
            )
        corpus = _read_corpus(values, data, place)
        if corpus.name in [other.name for other in corpora]:
            raise UserError(f"{place}: another corpus has the name {corpus.name!r}: choose another")
        corpora.append(corpus)
    return corpora


def texts_of(data: ConfigDict) -> list[ConfigDict]:
    """Returns the data settings of each corpus, or [config.data] if there are no corpora."""
    return [corpus.data for corpus in corpora_of(data)] or [data]


def languages_of(data: ConfigDict) -> tuple[str, str]:
    """Returns the source and target language codes; '' means that a language is unknown."""
    files, fields = (data.train_source, data.train_target), (data.source_field, data.target_field)
    names = {"files": files if data.train_target else fields, "tfds": data.tfds_fields}
    names["grammar"] = "en", "de"
    if data.source not in names or data.corpora:
        return tuple(data.languages)
    ends = [COMPRESSED_ENDING.sub("", Path(name).name) for name in names[data.source]]
    pairs = zip(data.languages, map(ENDING.fullmatch, ends), strict=True)
    source, target = (code or (match[1] if match else "") for code, match in pairs)
    return source, target


@contextlib.contextmanager
def naming(corpus: CorpusSettings) -> Iterator[None]:
    """Adds the corpus name to errors in the data of a corpus."""
    try:
        yield
    except UserError as error:
        raise type(error)(f"the corpus {corpus.name!r} of config.data.corpora: {error}") from None


def part_name(split: str, corpus: str) -> str:
    """Returns the name of a per-corpus subset of a split."""
    return f"{split}_{corpus}"


def parts_of(data: ConfigDict, split: str) -> list[str]:
    """Returns the names of a split's per-corpus subsets, or [split] if there are no corpora."""
    return [part_name(split, corpus.name) for corpus in corpora_of(data)] or [split]


def _read_corpus(values: Mapping[str, Any], data: ConfigDict, place: str) -> CorpusSettings:
    name = values.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise UserError(
            f"{place} has the name {name!r}: give it a name of the letters a to z, digits, _ and -"
        )
    place = f"{place} ({name})"
    settings = ConfigDict({"data": {**data, **OWN, "corpora": ()}})
    for key, value in values.items():
        if f"data.{key}" in having("shared"):
            raise UserError(f"{place}: all corpora share {key}: set config.data.{key} in its place")
        try:
            assign(settings, f"data.{key}", value)
        except UserError as error:
            raise UserError(f"{place}: {error}") from None
    keys = settings.data.to_dict()
    _, weight, tag, reverse = (keys.pop(key) for key in OWN)
    if not (0 < weight < math.inf):
        raise UserError(f"{place}: weight={weight} must be more than 0: leave the corpus out")
    if wrong := [piece for piece in tag.split() if RESERVED.fullmatch(piece)]:
        raise UserError(f"{place}: source_tag has {wrong[0]!r}, which has another meaning")
    return CorpusSettings(name, weight, " ".join(tag.split()), reverse, ConfigDict(keys))


def tags_of(data: ConfigDict) -> tuple[str, ...]:
    """Returns the distinct corpus tags in `config.data`; '' stands for a corpus without a tag."""
    return tuple(dict.fromkeys(corpus.tag for corpus in corpora_of(data)))


def symbols_of(data: ConfigDict) -> tuple[str, ...]:
    """Returns the distinct symbols in all tags, each of which becomes one token."""
    return tuple(dict.fromkeys(piece for tag in tags_of(data) for piece in tag.split()))


class Tagger:
    """Adds the tag `given` to sentences, or checks their existing tags if `given` is None."""

    def __init__(self, data: ConfigDict, given: str | None):
        self.tags = tags_of(data)
        self.choices = ", ".join(tag or "no tag" for tag in self.tags)  # for messages
        self.pieces = symbols_of(data)
        self.given = "" if given is None else " ".join(given.split())
        if given is not None and not self.pieces:
            raise UserError(
                f"source_tag={given} is for runs with tags, and no corpus of this one has any: "
                "leave it out"
            )
        if given is not None and self.given not in self.tags:
            raise UserError(f"source_tag={given} is unknown: choose one of {self.choices}")

    def __call__(self, text: str, place: str) -> str:
        """Returns the tagged sentence, or '' if there is no text after the tag."""
        if not self.pieces or not canonicalize(text):
            return text
        text = f"{self.given} {text}" if self.given else text
        tag, rest = self.split(text)
        if tag not in self.tags:
            begins = f"begins with {tag!r}" if tag else "has no tag"
            hint = "" if self.given else ", or give source_tag for all"
            raise UserError(f"{place} {begins}: begin it with one of {self.choices}{hint}")
        return text if canonicalize(rest) else ""

    def split(self, text: str) -> tuple[str, str]:
        """Splits a sentence into its initial tag, which may be '', and the remaining text."""
        end = 0
        for word in re.finditer(r"\s*(\S+)", text) if self.pieces else ():
            if word[1] not in self.pieces:
                break
            end = word.end()
        return " ".join(text[:end].split()), text[end:]
