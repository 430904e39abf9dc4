"""The flags of commands that are modules of their own: `python -m experiments.benchmark`."""

import argparse
from collections.abc import Callable
from typing import NoReturn

from transformer.errors import UserError


class Parser(argparse.ArgumentParser):
    """A parser of flags in full spelling, which answers a wrong one with a UserError."""

    def __init__(self, description: str | None):
        raw = argparse.RawDescriptionHelpFormatter
        super().__init__(description=description, allow_abbrev=False, formatter_class=raw)

    def error(self, message: str) -> NoReturn:
        """Raises UserError in place of printing the usage."""
        raise UserError(f"{message}: --help lists the flags")


def whole(least: int, most: int) -> Callable[[str], int]:
    """Returns the parser of a flag whose value is a whole number from `least` to `most`."""

    def parse(text: str) -> int:
        number = int(text) if text.isdecimal() else least - 1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a whole number between {least:,} and {most:,}"
            )
        return number

    return parse
