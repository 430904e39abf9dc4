"""Modifications of training pairs, so that a translator reads what its training text lacks.

Source: OpusTrainer, Bogoychev et al. 2023.
"""

import functools
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import NamedTuple

import regex
from ml_collections import ConfigDict

from transformer.data.characters import (
    canonicalize,
    join_texts,
    replace_all,
    sentence_case,
    symbol_codes,
    title_case,
)
from transformer.data.pairs import Pair
from transformer.errors import UserError

MODIFIER_RULE = "modifiers 5"  # in the keys of caches: another number if draws change
TYPO_RATE = 0.1  # words of a source that have one
CARELESS = 0.5  # of the sources with typing errors: they have no accents or no capitals instead
ACCENTS = 200  # the smallest combining class of marks that people leave out; vowel signs have less
ALONE, ALIGNED = 0.15, 0.7  # probabilities that a copied string is all there is, or a word's place
LONG_WORD = regex.compile(r"[^\W\d_]{4,}")  # long enough for a typing error
FINAL = regex.compile(r"[\s.!?…。！？।۔؟։]+$")
INVERTED_MARK = regex.compile("^[¿¡](?!.*[¿¡])")
NAME_OR_NUMBER = regex.compile(
    r"(?<![\w.,-])(?:\d{2,}|\p{Lu}\w{2,})(?![\w-]|[.,]\d)"
)  # numbers and names
# Parts of syllables, separated by blanks, and the letters of which one may stand for another.
ONSETS = "    b c d f g h j k l m n p r s t v w x y z br ch dr gr kr mc ng pr qu sh st th tr ł ñ ç"
VOWELS = "a e i o u a e i o u y ai ei ou á é í ó ú ã ö ü å ı"
CODAS = "  n r s l m ck nd z"
LATIN = [*range(0xC0, 0x17F), *range(0x1EA0, 0x1EFA)]
ACCENTED = 0.2  # probability that a letter of a name is one of them
# Where a copied string stands if no word of both sides gives its place: {0} in a text {1}, {2} with
# its final punctuation.
FRAMES = ("{0}: {1}{2}", "{0} {1}{2}", "{0} - {1}{2}", "{1} {0}{2}", "{1}{2} {0}", "{1} ({0}){2}")

Modifier = Callable[[Sequence[Pair], Random], Pair | None]


def typos(
    pairs: Sequence[Pair], random: Random, rate: float = TYPO_RATE, careless: float = CARELESS
) -> Pair:
    """Returns the pair with typing errors in the source, or with one without accents or capitals.

    Args:
      rate: probability that a word has an error; one word at least has.
      careless: probability that the source has no accents or capitals instead.
    """
    source = pairs[0].source
    change = random.choice((_without_accents, str.lower, sentence_case))
    if random.random() < careless and (plain := change(source)) != source:
        return pairs[0]._replace(source=plain)
    words = [*LONG_WORD.finditer(source)]
    places = [word for word in words if random.random() < rate]
    for word in reversed(places or random.sample(words, min(1, len(words)))):
        source = source[: word.start()] + _misspell(word[0], random) + source[word.end() :]
    return pairs[0]._replace(source=source)


def punctuation(pairs: Sequence[Pair], _: Random) -> Pair | None:
    """Returns the pair without final punctuation; None if a side has none, or nothing else."""
    plain = _of_both(pairs[0], lambda text: INVERTED_MARK.sub("", FINAL.sub("", text)))
    return None if {*plain[:2]} & {*pairs[0][:2], ""} else plain


def joined(pairs: Sequence[Pair], random: Random) -> Pair | None:
    """Returns the pair and the next one or two in one line; None if there is no next."""
    parts = pairs[: random.choice((2, 2, 3))]
    source = functools.reduce(join_texts, [pair.source for pair in parts])
    target = functools.reduce(join_texts, [pair.target for pair in parts])
    return Pair(source, target) if len(parts) > 1 else None


def copied(
    pairs: Sequence[Pair], random: Random, make: Callable[[Random], str] | None = None
) -> Pair:
    """Returns the pair with a string that is the same on both sides.

    It stands for a number or a name that both sides have once, or next to the text. `make` draws
    it; by default it is a name, number, address, code, placeholder or emoji.
    """
    source, target = pairs[0].source, pairs[0].target
    shared = sorted(
        word
        for word in {*NAME_OR_NUMBER.findall(source)} & {*NAME_OR_NUMBER.findall(target)}
        if source.count(word) == target.count(word) == 1
    )
    if random.random() < ALONE and make is None:
        return Pair(string := draw_string(random), string)
    if shared and random.random() < ALIGNED:
        word = random.choice(shared)
        string = (make or (draw_number if word.isdigit() else draw_name))(random)
        return _of_both(pairs[0], lambda text: text.replace(word, string))
    string, frame = (make or draw_string)(random), random.choice(FRAMES)

    def put(text: str) -> str:
        plain = FINAL.sub("", text)
        return frame.format(string, plain, text[len(plain) :])

    return _of_both(pairs[0], put)


def _of_both(pair: Pair, change: Callable[[str], str]) -> Pair:
    return Pair(change(pair.source), change(pair.target))


MODIFIERS: Mapping[str, Modifier] = {
    "capitals": lambda pairs, _: _of_both(pairs[0], str.upper),
    "title": lambda pairs, _: _of_both(pairs[0], title_case),
    "typos": typos,
    "punctuation": punctuation,
    "joined": joined,
    "copied": copied,
}
LETTER_CASES = ("capitals", "title")
MAX_PAIRS = 3  # that a modifier reads
TAGS = regex.compile("^[\ue000-\uf8ff ]+(?=.)")  # see `symbol_codes`


def draw_name(random: Random) -> str:
    """Returns one or two words that look like names, and are hardly any."""

    def word() -> str:
        parts = (ONSETS, VOWELS) * random.choice((2, 2, 3)) + (CODAS,)
        letters = "".join(random.choice(part.split(" ")) for part in parts)
        latin = (chr(random.choice(LATIN)) if random.random() < ACCENTED else a for a in letters)
        return "".join(filter(str.isalpha, "".join(latin).capitalize()))

    name = random.choice((" ", " ", "-", "'")).join(word() for _ in range(random.choice((1, 1, 2))))
    return random.choice((str, _without_accents))(name)


def draw_number(random: Random) -> str:
    """Returns a number of two to five digits."""
    return str(random.randrange(10, 10 ** random.randrange(2, 6)))


def draw_string(random: Random) -> str:
    """Returns a name, number, address, code, placeholder or emoji."""
    name, number = draw_name(random), draw_number(random)
    word = random.choice((str.lower, str.upper, str))(_without_accents(name.split()[0]))
    site = f"{random.choice(('www.', 'https://', 'http://www.'))}{word}.{draw_name(random)[:3].lower()}"
    address = random.choice(
        (f"{site}/{number}", f"{site}?{word[0]}={number}", f"{word}@{word}.com")
    )
    code = f"{word[:3]}{random.choice(('-', '', '_', '.'))}{number}"
    marks = ("{%s}", "{{%s}}", "<%s>", "[%s]", "$%s", "__%s__", "%%(%s)d", "%%%.1s")
    placeholder = random.choice(marks) % word
    time = f"{number}{random.choice('.,:-/')}{draw_number(random)}"
    emoji = chr(random.choice((0x1F300, 0x1F400, 0x1F600)) + random.randrange(0x40))
    return random.choice((name, name, name, number, time, address, code, placeholder, emoji))


def _misspell(word: str, random: Random) -> str:
    """A word with two letters swapped, one left out, doubled or replaced by another of them."""
    place = random.randrange(len(word) - 1)
    a, b = word[place], word[place + 1]
    edits = [edit for edit in (b + a, b, a + a + b, random.choice(word) + b) if edit != a + b]
    return word[:place] + random.choice(edits) + word[place + 2 :]


def _without_accents(text: str) -> str:
    marks = unicodedata.normalize("NFD", text)
    plain = "".join(character for character in marks if unicodedata.combining(character) < ACCENTS)
    return unicodedata.normalize("NFC", plain)


class Augmentation(NamedTuple):
    """Modifies fractions of the training pairs, by modifier, but no symbols in them."""

    fractions: Mapping[str, float]
    symbols: Sequence[str] = ()

    @property
    def key(self) -> tuple[object, ...]:
        """What draws depend on; empty if there is none."""
        return (MODIFIER_RULE, *self.fractions.items()) if self.fractions else ()

    def draw(self, pairs: Callable[[], Sequence[Pair]], random: Random) -> tuple[str, Pair | None]:
        """Returns a modifier and what it makes of the first pair; '' and None if that stays."""
        level = random.random()
        for name, fraction in self.fractions.items():
            level -= fraction
            if level < 0:
                texts = pairs()
                pair = modify(MODIFIERS[name], texts, random, self.symbols)
                return (name, pair) if pair != texts[0] else ("", None)
        return "", None


def modify(
    modifier: Modifier, pairs: Sequence[Pair], random: Random, symbols: Sequence[str] = ()
) -> Pair:
    """Returns what a modifier makes of the first of some pairs; the pair itself if it cannot.

    Symbols do not change; those at the start of a source, as tags are, stay there.
    """
    codes = symbol_codes(symbols)
    coded = [_of_both(pair, lambda text: replace_all(text, codes)) for pair in pairs]
    plain = [pair._replace(source=TAGS.sub("", pair.source)) for pair in coded]
    tags = [a.source.removesuffix(b.source) for a, b in zip(coded, plain, strict=True)]
    same = [pair for pair, tag in zip(plain, tags, strict=True) if tag == tags[0]]
    changed = modifier(same, random)
    if changed is None or changed.source == same[0].source:  # which would not say how to write
        return pairs[0]
    back = {code: symbol for symbol, code in codes.items()}
    whole = changed._replace(source=tags[0] + changed.source)
    return _of_both(whole, lambda text: canonicalize(replace_all(text, back)))


def augmentation_of(data: ConfigDict, symbols: Sequence[str] = ()) -> Augmentation:
    """Returns what `config.data` says of the modifiers."""
    fractions = {name: data[f"augment_{name}"] for name in MODIFIERS}
    return Augmentation({name: part for name, part in fractions.items() if part}, symbols)


def check_augmentation(data: ConfigDict, task: str) -> None:
    """Raises UserError if `data.augment_*` add to more than 1, or the task has no pairs."""
    fractions = augmentation_of(data).fractions
    keys = [f"data.augment_{name}={fraction:g}" for name, fraction in fractions.items()]
    if (total := sum(fractions.values())) > 1 + 1e-9:
        raise UserError(f"{' '.join(keys)} add to {total:g}: lower them, to a sum of at most 1")
    if keys and task != "translation":
        raise UserError(
            f"{keys[0]} modifies sentence pairs, and config.task={task} has none: set "
            f"config.{keys[0].partition('=')[0]}=0"
        )
