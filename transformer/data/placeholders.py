"""Placeholders: numbered tokens in the model input for strings that need no translation.

These strings are addresses, long numbers, template placeholders, emoji, and rare words of the kinds
that are copied in the training data (see `Words`). They are restored in the translation.
Source: Post et al. 2019, "An Exploration of Placeholding in Neural Machine Translation".
"""

import itertools
import re
import zlib
from collections.abc import Mapping, Sequence

from transformer.data.pairs import Pair, move_links
from transformer.data.words import TERM, Token, Words

PLACEHOLDER_RULE = "placeholders 1"  # in cache keys: change the number when the rule changes
NAMES = tuple(f"<copy:{number}>" for number in range(10))  # the maximum per line is 10
NAME = re.compile(f"( ?)({'|'.join(NAMES)})")


def read_line(line: str, words: Words) -> tuple[str, dict[str, str]]:
    """Replaces strings in a line by placeholders; also returns a dict to restore the strings."""
    tokens = [x for x in _strings_of_copies(line, words) if not line.startswith(TERM[0], x.end)]
    tokens = tokens[: len(NAMES)]
    strings = dict(zip(NAMES, (words.written(token.text) for token in tokens), strict=False))
    return _replace_placeholders(line, tokens, NAMES), strings


def read_pair(pair: Pair, words: Words, training: bool = False) -> Pair:
    """Replaces strings that occur on both sides of a pair by placeholders.

    In training, the first placeholder number depends on the text, so that all numbers are learnt.
    """
    if not (tokens := _strings_of_copies(pair.source, words)):
        return pair
    free = [*words.tokens(pair.target)]
    sides: tuple[list[Token], list[Token]] = ([], [])
    for token in tokens:
        texts = token.text, words.written(token.text)
        for text, other in itertools.product(texts, free):
            end = other.start + len(text)
            if pair.target.startswith(text, other.start) and end in {each.end for each in free}:
                free = [each for each in free if not other.start <= each.start < end]
                sides[0].append(token)
                sides[1].append(other._replace(text=text))
                break
    names = [name for name in NAMES if name not in pair.source]
    first = zlib.crc32(pair.source.encode()) % max(1, len(names)) if training else 0
    names = names[first:] + names[:first]
    source, target = (
        _replace_placeholders(text, each, names) for text, each in zip(pair[:2], sides, strict=True)
    )
    return move_links(pair, source, target)


def write_text(text: str, strings: Mapping[str, str]) -> tuple[str, int]:
    """Restores each string once; returns the text and the number of strings not restored."""
    lacking = dict(strings)

    def write(match: re.Match) -> str:
        blank, name = match.groups()
        return blank + lacking.pop(name) if name in lacking else ""

    return NAME.sub(write, text).strip(), len(lacking)


def _strings_of_copies(line: str, words: Words) -> list[Token]:
    """Returns the strings to copy, except symbols, or [] if the model has no placeholders.

    Adjacent rare words form one string, including a capitalised first word that may be a name.
    """
    strings: list[tuple[Token, bool]] = []
    for token in words.tokens(line) if NAMES[0] in words.symbols else ():
        kind = words.kind_of(token)
        is_other = not kind and not token.is_word
        copied = kind in words.copied or (is_other and not token.text.startswith(words.symbols))
        if not copied and kind.removeprefix("first ") not in words.copied:
            continue
        last, any_copied = strings[-1] if strings else (token, False)
        if last.is_word and token.is_word and line[last.end : token.start] == " ":
            text = line[last.start : token.end]
            strings[-1] = last._replace(text=text), any_copied or copied
        else:
            strings.append((token, copied))
    return [token for token, copied in strings if copied]


def _replace_placeholders(line: str, tokens: Sequence[Token], names: Sequence[str]) -> str:
    """Replaces each token of a line by the placeholder with the same index in `names`."""
    pairs = sorted(zip(tokens, names, strict=False), key=lambda pair: -pair[0].start)
    for token, name in pairs:
        line = line[: token.start] + name + line[token.end :]
    return line
