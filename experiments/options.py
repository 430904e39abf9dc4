"""What a mode is told on the command line beside the run and its config."""

import dataclasses

from transformer.errors import UserError


@dataclasses.dataclass(frozen=True)
class Options:
    """The flags of `launch.py` that only some modes read.

    Attributes:
      sentence: of `attention`, the sentence to draw; None where none was given.
      translation: of `attention`, its translation; the model's own where it is None.
      hide_end: of `attention`, whether pictures leave out the end-of-sentence column.
      layer, head: of `attention`, counted from 1, which one pictures show and the explorer opens
        at; None for all.
      input: of `align`, a file of pairs, source<TAB>target a line; the test set where it is None.
      links: of `align`, a file of their gold links; those that the data knows where it is None.
      output: of `align`, the file to write the links that were found to, if any.
      token: of `embeddings`, the token whose nearest neighbours are asked for, in place of
        pictures.
    """

    sentence: str | None = None
    translation: str | None = None
    hide_end: bool = False
    layer: int | None = None
    head: int | None = None
    input: str | None = None
    links: str | None = None
    output: str | None = None
    token: str | None = None

    def needed_sentence(self) -> str:
        """Returns the sentence.

        Raises:
          UserError: none was given.
        """
        if self.sentence is None:
            raise UserError("--sentence is missing: give the sentence to draw")
        return self.sentence
