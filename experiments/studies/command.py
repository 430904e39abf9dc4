"""Shared code of the small commands: flags, and one line and exit code 2 for a user error."""

import argparse
from collections.abc import Callable, Sequence
from typing import NoReturn

from experiments import process
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


def wholes(least: int, most: int) -> Callable[[str], list[int]]:
    """Returns the parser of a flag whose value is whole numbers, see `whole`, joined by commas."""
    parse = whole(least, most)
    return lambda text: [parse(part) for part in text.split(",")]


def exit_code(run: Callable[[Sequence[str]], None], arguments: Sequence[str]) -> int:
    """Returns 0 after a run with these arguments, or 2 after one line on what the user can fix."""

    def command() -> int:
        run(arguments)
        return 0

    return process.exit_code(command, place="output", memory="the numbers of this command")
