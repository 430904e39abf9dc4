"""A labelled text, the unit of classification."""

from typing import NamedTuple


class Labelled(NamedTuple):
    """A text and the name of its class.

    `kind` is the phenomenon of a synthetic text, see `toy_reviews`; empty if unknown.
    """

    text: str
    label: str
    kind: str = ""
