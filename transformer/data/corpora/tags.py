"""The tags before source sentences, which say from which corpus or into which language they are."""

import re
from collections.abc import Sequence

from ml_collections import ConfigDict

from transformer.data.characters import canonicalize
from transformer.data.corpora.settings import corpora_of
from transformer.errors import UserError


def tags_of(data: ConfigDict) -> tuple[str, ...]:
    """Returns the different tags of the corpora of `config.data`; '' is that of one without."""
    return tuple(dict.fromkeys(corpus.tag for corpus in corpora_of(data)))


def symbols_of(data: ConfigDict) -> tuple[str, ...]:
    """Returns the pieces of all tags, each of which is one token."""
    return tuple(dict.fromkeys(piece for tag in tags_of(data) for piece in tag.split()))


class Tagger:
    """Checks the tags of sentences, and adds the one that is given to all of them.

    Args:
      data: `config.data`.
      given: the tag of all sentences; None if each begins with its own.

    Raises:
      UserError: a tag is given, and there is no such tag.
    """

    def __init__(self, data: ConfigDict, given: str | None):
        self.tags = tags_of(data)
        self.pieces = symbols_of(data)
        self.given = "" if given is None else " ".join(given.split())
        if given is not None and not self.pieces:
            raise UserError(
                f"source_tag={given} is for runs with tags, and no corpus of this one has any: "
                "leave it out"
            )
        if given is not None and self.given not in self.tags:
            raise UserError(f"source_tag={given} is unknown: choose one of {_listed(self.tags)}")

    def __call__(self, text: str, place: str) -> str:
        """Returns a sentence with its tag; '' if there is no more of it than a tag.

        Args:
          place: the sentence's place, for messages.

        Raises:
          UserError: it begins with none of the tags.
        """
        if not self.pieces or not canonicalize(text):
            return text
        text = f"{self.given} {text}" if self.given else text
        tag, rest = self.split(text)
        if tag not in self.tags:
            begins = f"begins with {tag!r}" if tag else "has no tag"
            hint = "" if self.given else ", or give source_tag for all"
            raise UserError(f"{place} {begins}: begin it with one of {_listed(self.tags)}{hint}")
        return text if canonicalize(rest) else ""

    def split(self, text: str) -> tuple[str, str]:
        """Returns the tag that a sentence begins with, '' for none, and the rest of it."""
        end = 0
        for word in re.finditer(r"\s*(\S+)", text) if self.pieces else ():
            if word[1] not in self.pieces:
                break
            end = word.end()
        return " ".join(text[:end].split()), text[end:]


def _listed(tags: Sequence[str]) -> str:
    return ", ".join(tag or "no tag" for tag in tags)
