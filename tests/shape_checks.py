"""The checker of shapes and types while tests run: it takes for a type what static checkers take.

These take an int for a float (PEP 484), and `io`'s own streams for TextIO, BinaryIO and IO[bytes].
"""

import io
from typing import IO, BinaryIO, TextIO

from beartype import BeartypeConf, FrozenDict, beartype

STREAMS = {
    TextIO: io.TextIOBase | TextIO,
    BinaryIO: io.IOBase | BinaryIO,
    IO[bytes]: io.IOBase | IO[bytes],
}
checked = beartype(conf=BeartypeConf(is_pep484_tower=True, hint_overrides=FrozenDict(STREAMS)))
