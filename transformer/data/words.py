"""The word vocabulary of the training data, and letter case conversion.

The words of a source line in capitals or title case are converted to their usual case in the
training data, and the translation is converted to the case of the source line. Exported pages
implement the same functions in JavaScript (experiments/web/offline/offline_case.js).
"""

import collections
import dataclasses
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import regex

from transformer.data.characters import capitalize, has_capital, has_small, lower, upper
from transformer.data.pairs import Pair
from transformer.files import parse_json

WORD_RULE = "words 1"  # in cache keys: change the number when the rules change
TERM = "<term:>", "</term:>"  # in model input, around a translation after the words that it is for
RARE = 2  # maximum number of occurrences of a rare word in the source texts
MAX_WORDS = 50_000  # maximum number of frequent words; all other words are rare
SHAPE = {"forms": [str], "copied": [str], "languages": [str]}
# Patterns shared by Python and the JavaScript of exported pages.
CHARACTER = r"[\p{Alphabetic}\p{M}\p{Nd}_]"
# Caseless letters, such as Chinese characters, may adjoin foreign words, numbers and addresses.
SCRIPTS = (r"\p{Lu}\p{Ll}\p{Lt}\p{Lm}", r"\p{Lo}\p{Lm}")
LETTERS = [rf"[{letters}][{letters}\p{{M}}]*" for letters in SCRIPTS]
WORD = "|".join(rf"{letters}(?:['’·-]{letters})*" for letters in LETTERS)
CASED = r"[\p{Lu}\p{Ll}\p{Nd}_]"
TEMPLATES = (  # placeholders of templates and message catalogues, tags and entities
    rf"\{{\{{?{CHARACTER}[\p{{Alphabetic}}\p{{Nd}}_.]*\}}\}}?",
    rf"\$(?!\p{{Nd}}){CHARACTER}+|__\p{{Alphabetic}}{CHARACTER}*__|\[\[?{CHARACTER}+\]\]?",
    r"</?\p{Alphabetic}[^<>\s]*(?:\s[^<>]*=[^<>]*)?\s?/?>|&#?[\p{Alphabetic}\p{Nd}]{2,};",
    rf"%(?:\({CHARACTER}+\)|[0-9]+\$)?[-+0]?[0-9.]*l*[sdifgxu@](?!{CASED})",
)
STRINGS = (  # strings other than words: they keep their case and need no translation
    r"(?:[Hh][Tt][Tt][Pp][Ss]?://|www\.|WWW\.)[^\s<>\x22«»“”\u3000-\uffff]*"
    r"[^\s<>\x22«»“”\u3000-\uffff.,;:!?')\]’…]",
    r"(?<![\p{Lu}\p{Ll}\p{Nd}_.+-])[\p{Lu}\p{Ll}\p{Nd}_.+-]+@"
    r"(?:[\p{Lu}\p{Ll}\p{Nd}-]+\.)+[\p{Lu}\p{Ll}]{2,}",
    *TEMPLATES,
    rf"(?<![\p{{Alphabetic}}\p{{Nd}}@])[@#]{CHARACTER}{{2,}}",
    rf"(?<!{CASED}|[.,])(?:[0-9]+(?:[.,:/'’][0-9]+)+|[0-9]{{2,}})(?!{CASED})",
    rf"(?<!{CASED})\p{{Lu}}+-?[0-9][\p{{Lu}}0-9]*(?!{CASED})",
    r"\p{Regional_Indicator}{2}|\p{Extended_Pictographic}\p{Emoji_Modifier}?\ufe0f?"
    r"(?:\u200d\p{Extended_Pictographic}\p{Emoji_Modifier}?\ufe0f?)*"
    "[\U000e0020-\U000e007f]*",
)
STRING = "|".join(STRINGS)
KINDS = (
    *("title", "capitals", "first title", "first capitals", "foreign"),  # of rare words
    *("line", "number", "short number"),
)
# Numbers with thousands separators and at most one decimal separator, but not dates or versions.
NUMBER = regex.compile(r"[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]{3})*(?:,[0-9]+)?")
SHORT = regex.compile("[0-9]{2,3}")
SWAP = str.maketrans(".,", ",.")
# Text before the first word of a sentence: a sentence end, or a colon with a quotation mark,
# followed by no words or numbers except in tags. A Greek question ends with a semicolon.
START = (
    r"(?:(?:[.!?…։]|\p{sc=Greek};)['\x22“”’‘»«›‹)\]]*(?=[\s<])|:\s?[\x22“„«»])"
    r"(?:<[^<>]*>|&#?[\p{L}\p{Nd}]+;|[^\p{L}\p{Nd}<&])*$"
)

MIN_LETTERS, MIN_WORDS = 4, 4  # minimum letters to detect capitals; words for title case
INNER = regex.compile(r"[\p{L}\p{Nd}_]$")  # text before a letter inside a word, as in "3rd"
WORD_START = regex.compile(r"(?<![\p{Alphabetic}\p{M}\p{Nd}_'’·])(?:ij|[\p{Alphabetic}\p{M}])")


class Token(NamedTuple):
    """A word or another string in a line; `start` is the token's character offset, from zero.

    `before` is the preceding text, starting with the previous word's last letter or a period.
    """

    text: str
    start: int
    is_word: bool
    before: str

    @property
    def end(self) -> int:
        """The offset after the last character of the token."""
        return self.start + len(self.text)

    @property
    def is_first(self) -> bool:
        """Whether the token is the first word of a sentence."""
        return _start.search(self.before) is not None


_start = regex.compile(START)
_parts = regex.compile(r"[\p{Alphabetic}\p{M}]+")


@dataclasses.dataclass(frozen=True)
class Words:
    """The words on the source side of the training data.

    Attributes:
      forms: frequent words as written inside sentences, in descending order of frequency.
      copied: kinds (see `kind_of`) whose rare words or numbers are mostly copied into targets.
        Words with one or two occurrences represent words that the data do not contain. "line" means
        that most lines without words are copied, and "number" that most numbers keep their points
        and commas, which are swapped otherwise. Kinds without data are included.
      languages: language codes of source and target, or '' for an unknown language.
      symbols: source strings that are always one token.
    """

    forms: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()
    languages: tuple[str, str] = ("", "")
    symbols: tuple[str, ...] = ()

    def learn(self, pairs: Iterable[Pair]) -> "Words":
        """Learns the words of `pairs`, which is read twice; languages and symbols are kept."""
        counts, forms = collections.Counter(), collections.defaultdict(collections.Counter)
        for pair in pairs:
            capitals = not has_small(pair.source)
            for token in self.tokens(pair.source):
                if token.is_word:
                    counts[key := self._in_capitals(token.text)] += 1
                    small = lower(token.text, self.languages[0])
                    is_usual = token.text == small or not (capitals or token.is_first)
                    forms[key][token.text if is_usual else small] += is_usual
        common = [key for key, count in counts.most_common(MAX_WORDS) if count > RARE]
        usual = tuple(max(forms[key], key=forms[key].__getitem__) for key in common)
        words, copies = dataclasses.replace(self, forms=usual), {kind: [] for kind in KINDS}
        for pair in pairs:
            tokens = [*words.tokens(pair.source)]
            for token in tokens:
                kind, swapped = words.kind_of(token), words.written(token.text)
                stays = token.text in pair.target
                if kind or (swapped != token.text and (stays or swapped in pair.target)):
                    copies[kind or "number"].append(stays)
            if not any(token.is_word for token in tokens):
                copies["line"].append(pair.source == pair.target)
        copied = tuple(kind for kind, each in copies.items() if 2 * sum(each) >= len(each))
        return dataclasses.replace(words, copied=copied)

    @functools.cached_property
    def _pattern(self) -> regex.Pattern:
        escaped = (regex.escape(symbol) for symbol in sorted(self.symbols, key=len, reverse=True))
        term = ".*?".join(TERM)
        return regex.compile("|".join((term, *escaped, STRING, f"(?<word>{WORD})")))

    def tokens(self, line: str) -> Iterator[Token]:
        """Yields the words of a line, and the strings that are not words, such as symbols."""
        end = 0  # end offset of the last word
        for match in self._pattern.finditer(line):
            is_word, start = match["word"] is not None, match.start()
            before = line[end - 1 : start] if end else ". " + line[:start]
            yield Token(match[0], start, is_word, before)
            end = match.end() if is_word else end

    @functools.cached_property
    def alphabet(self) -> frozenset[str]:
        """The letters of known words, in lower case."""
        return frozenset(lower("".join(self.forms), self.languages[0]))

    @functools.cached_property
    def has_case(self) -> bool:
        """Whether most letters of known words have case."""
        return 2 * sum(map(has_small, self.alphabet)) > len(self.alphabet)

    @functools.cached_property
    def _by_capitals(self) -> dict[str, str]:
        # In reverse order, so that the most frequent form replaces the others.
        return {self._in_capitals(form): form for form in reversed(self.forms)}

    def _in_capitals(self, text: str) -> str:
        """Converts a word to capitals, possibly without accents; ß becomes SS."""
        language = self.languages[0]
        return upper(lower(text.replace("’", "'"), language), language)

    def form(self, text: str) -> str | None:
        """Returns the usual form of a word inside training sentences, or None if it is rare."""
        return self._by_capitals.get(self._in_capitals(text))

    def small(self, text: str) -> str:
        """Converts a rare word to lower case, except for parts with a known form."""
        small = lower(text, self.languages[0])
        return _parts.sub(lambda part: self.form(part[0]) or part[0], small)

    def kind_of(self, token: Token) -> str:
        """Returns the kind of a rare capitalised word or of a number, or '' for any other token.

        "L'Italie" is not rare if "Italie" is known. In a language with letter case, a word of
        caseless letters is foreign.
        """
        if not token.is_word:
            return "short number" if SHORT.fullmatch(token.text) else ""
        has_no_case = self.has_case and not has_small(token.text)
        if not has_capital(token.text) and (not has_no_case or INNER.search(token.before)):
            return ""
        parts = _parts.findall(token.text)
        if any(map(self.form, (token.text, *parts))):
            return ""
        if not self.alphabet.issuperset(lower("".join(parts), self.languages[0])):
            return "foreign"
        return "first " * token.is_first + ("title" if has_small(token.text) else "capitals")

    def is_copied(self, line: str) -> bool:
        """Returns whether a line has no words and such lines are copied."""
        words = any(token.is_word for token in self.tokens(line))
        return "line" in self.copied and not words and not line.startswith(self.symbols)

    def written(self, string: str) -> str:
        """Converts a number's separators to the style of the targets; keeps other strings."""
        stays = "number" in self.copied or not NUMBER.fullmatch(string)
        return string if stays else string.translate(SWAP)

    def values(self) -> dict[str, tuple[str, ...]]:
        """Returns all fields except the symbols, keyed by name."""
        return {name: getattr(self, name) for name in SHAPE}

    def to_json(self) -> str:
        """Returns the rule version and the fields as JSON."""
        return WORD_RULE + json.dumps(self.values(), ensure_ascii=False)

    @classmethod
    @functools.cache
    def from_json(cls, text: str, symbols: tuple[str, ...] = ()) -> "Words":
        """Parses `to_json` output; another rule version gives no words. May raise RuntimeError."""
        if not text.startswith(WORD_RULE):
            return cls(symbols=symbols)
        values, fault = parse_json(text.removeprefix(WORD_RULE).encode(), SHAPE)
        if fault:
            raise RuntimeError(fault)
        return cls(*(tuple(values[name]) for name in SHAPE), symbols=symbols)


def shares_stem(word: str, other: str) -> bool:
    """Returns whether two words begin with the same letters, at least 60% of the longer word."""
    shared = -(-6 * max(len(word), len(other)) // 10)
    return word.lower()[:shared] == other.lower()[:shared]


# -- the case of a line


def case_of(line: str, words: Words) -> str:
    """Returns the case of a line: "capitals", "title", or '' for any other case.

    The case is detected from known words whose case differs from their usual case in the training
    data. In a line in capitals, a few words such as "km" may be in lower case.
    """
    tokens = [token for token in words.tokens(line) if token.is_word]
    cased = [token for token in tokens if has_capital(token.text) or has_small(token.text)]
    capitals = [token.text for token in cased if not has_small(token.text)]
    if len(capitals) >= 2 * (len(tokens) - len(capitals)):
        # One-letter words are skipped: "I" is usual in English and "A" is not.
        forms = {text: form for text in capitals if len(text) > 1 and (form := words.form(text))}
        usual = sum(form == text for text, form in forms.items())
        letters = sum(map(len, capitals)) if not forms and len(capitals) == len(tokens) else 0
        if len(forms) - usual >= max(1, usual) or letters >= MIN_LETTERS:
            return "capitals"
    if len(cased) < MIN_WORDS or not all(has_capital(token.text[0]) for token in cased):
        return ""
    forms = [*filter(None, (words.form(token.text) for token in cased if not token.is_first))]
    names = sum(has_capital(form[0]) for form in forms)
    return "title" if len(forms) - names >= max(1, names) or not words.forms else ""


def read_case(line: str, words: Words) -> str:
    """Converts a line in capitals or title case to the usual case of its words in training data."""
    case, language = case_of(line, words), words.languages[0]

    def change(token: Token) -> str:
        mixed = case == "capitals" and has_small(token.text)
        form = words.form(token.text) or (token.text if mixed else words.small(token.text))
        first = token._replace(text=capitalize(form, language))
        # A rare word that starts a sentence may not be a name, so it is not copied.
        stays = mixed or not token.is_first or words.kind_of(first) in words.copied
        return form if stays else first.text

    return _change_case(line, words, change) if case else line


def write_case(text: str, line: str, words: Words) -> str:
    """Converts a translation to the case of its source line; see `read_case`."""
    mixed = [token.text for token in words.tokens(line) if token.is_word and has_small(token.text)]
    return set_case(text, case_of(line, words), words, 1, mixed)


def set_case(text: str, case: str, words: Words, side: int = 0, mixed: Sequence[str] = ()) -> str:
    """Converts a text to "capitals", "title", "sentence" or "small" (lower) case.

    Args:
      side: 0 for source text, 1 for target text.
      mixed: words that keep their case if `case` is "capitals".
    """
    stay = {word.lower(): word for word in mixed}
    language = words.languages[side]

    def change(token: Token) -> str:
        if case == "capitals":
            return stay.get(token.text.lower()) or upper(token.text, language)
        if case == "title":
            start = "$^" if INNER.search(token.before) else WORD_START
            return regex.sub(start, lambda match: capitalize(match[0], language), token.text)
        small = lower(token.text, language)
        return capitalize(small, language) if case == "sentence" and token.is_first else small

    return _change_case(text, words, change) if case else text


def _change_case(line: str, words: Words, change: Callable[[Token], str]) -> str:
    """Applies `change` to each word of a line; the text between words is unchanged."""
    parts, end = [], 0
    for token in words.tokens(line):
        if token.is_word:
            parts += [line[end : token.start], change(token)]
            end = token.end
    return "".join((*parts, line[end:]))
