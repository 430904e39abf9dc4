"""The flags of `launch.py` that only some modes read."""

import dataclasses
from typing import Any

from transformer.errors import UserError


def _flag(text: str, default: Any = None) -> Any:
    """A field whose flag has this text in --help."""
    return dataclasses.field(default=default, metadata={"help": text})


@dataclasses.dataclass(frozen=True)
class Options:
    """The value of each of these flags; which modes read it says the table of modes."""

    trial: int | None = _flag("of a sweep: the number of the one trial to train")
    input: str | None = _flag(
        "file to read, one text per line; standard input by default, for align the test set"
    )
    output: str | None = _flag("file to write; standard output by default")
    links: str | None = _flag("file of the gold links of --input, in Pharaoh format")
    prompt: str | None = _flag("what the one text to write starts with, in place of --input")
    sentence: str | None = _flag("the sentence to draw")
    translation: str | None = _flag("its translation; the model's own by default")
    hide_eos: bool = _flag("leave out the end-of-sentence column, and renormalise", False)
    layer: int | None = _flag("the layer to draw and open, from 1; all by default")
    head: int | None = _flag("the head to draw and open, from 1; all by default")
    token: str | None = _flag(
        "print the nearest neighbours of this token or word, and draw nothing"
    )

    def needed_sentence(self) -> str:
        """Returns the sentence.

        Raises:
          UserError: none was given.
        """
        if self.sentence is None:
            raise UserError("--sentence is missing: give the sentence to draw")
        return self.sentence
