"""A labelled text, the unit of classification."""

from typing import NamedTuple


class Labelled(NamedTuple):
    """A text and the name of its class.

    `kind` is the phenomenon that a synthetic text shows, see `toy_reviews`; empty if not known.
    """

    text: str
    label: str
    kind: str = ""
