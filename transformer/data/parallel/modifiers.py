"""Data augmentation of training pairs, for translation models that are robust to unusual input.

Source: OpusTrainer, Bogoychev et al. 2023.
"""

import collections
import functools
import itertools
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple

import regex
from ml_collections import ConfigDict

from transformer.data.characters import canonicalize, has_capital, join_texts, split_words
from transformer.data.corpora import languages_of
from transformer.data.pairs import Pair, move_links
from transformer.data.placeholders import NAMES
from transformer.data.tokenizer.draws import KEYS
from transformer.data.words import TERM, Words, set_case, shares_stem
from transformer.errors import UserError

MODIFIER_RULE = "modifiers 7"  # in cache keys: change the number if samples change
TYPO_RATE = 0.1  # fraction of source words with a typing error
CARELESS = 0.5  # probability of removing accents or capitals instead of adding typing errors
ACCENTS = 200  # minimum combining class of marks that people omit; vowel signs have lower classes
ALONE, ALIGNED = 0.15, 0.7  # probabilities that a copied string replaces the whole text, or a word
LONG_WORD = 4  # minimum letters of a word for a typing error
MAX_SPAN, MAX_TERMS = 3, 3  # maximum words of an annotated term, and terms of a source
OTHER_WORD, OTHER_FORM = 0.2, 0.4  # probabilities that a term is another word, or another form
CORE = regex.compile(r"^([^\p{L}\p{N}]*)(.*?)([^\p{L}\p{N}\p{M}]*)$")  # a word within punctuation
FINAL = regex.compile(r"[\s.!?…。！？।۔؟։]+$")
INVERTED_MARK = regex.compile("^[¿¡](?!.*[¿¡])")
# Syllable parts, separated by spaces, and accented letters that may replace a letter.
ONSETS = "    b c d f g h j k l m n p r s t v w x y z br ch dr gr kr mc ng pr qu sh st th tr ł ñ ç"
VOWELS = "a e i o u a e i o u y ai ei ou á é í ó ú ã ö ü å ı"
CODAS = "  n r s l m ck nd z"
LATIN = [*range(0xC0, 0x17F), *range(0x1EA0, 0x1EFA)]
ACCENTED = 0.2  # probability that a letter of a name is replaced by an accented letter
# Templates for a copied string that replaces no word: {0} is the string, {1} the text, and {2} the
# final punctuation of the text.
FRAMES = ("{0}: {1}{2}", "{0} {1}{2}", "{0} - {1}{2}", "{1} {0}{2}", "{1}{2} {0}", "{1} ({0}){2}")

Lexicon = Mapping[str, Sequence[str]]  # target words by source word
Make = Callable[[Random], str]
Modifier = Callable[[Sequence[Pair], Random, Words], Pair | None]


def in_case(case: str) -> Modifier:
    """Returns a modifier that converts both sides to a case; see `set_case`."""
    return lambda pairs, _, words: Pair(
        set_case(pairs[0].source, case, words), set_case(pairs[0].target, case, words, 1)
    )


def typos(
    pairs: Sequence[Pair],
    random: Random,
    words: Words,
    rate: float = TYPO_RATE,
    careless: float = CARELESS,
) -> Pair:
    """Adds typing errors to the source of a pair, or removes accents or capitals from the source.

    Args:
      rate: probability that a word has an error; at least one word has an error.
      careless: probability that accents or capitals are removed instead.
    """
    source, case = pairs[0].source, random.choice(("", "small", "sentence"))
    plain = set_case(source, case, words) if case else _without_accents(source)
    if random.random() < careless and plain != source:
        return pairs[0]._replace(source=plain)
    long = [t for t in words.tokens(source) if t.is_word and len(t.text) >= LONG_WORD]
    places = [token for token in long if random.random() < rate]
    for word in reversed(places or random.sample(long, min(1, len(long)))):
        source = source[: word.start] + _misspell(word.text, random) + source[word.end :]
    return pairs[0]._replace(source=source)


def punctuation(pairs: Sequence[Pair], *_: object) -> Pair | None:
    """Removes final punctuation; returns None if a side has no final punctuation or no text."""
    plain = _modify_both(pairs[0], lambda text: INVERTED_MARK.sub("", FINAL.sub("", text)))
    return None if {*plain[:2]} & {*pairs[0][:2], ""} else plain


def joined(pairs: Sequence[Pair], random: Random, *_: object) -> Pair | None:
    """Joins the pair with the next one or two pairs; returns None if there is no next pair."""
    parts = pairs[: random.choice((2, 2, 3))]
    return functools.reduce(_join, parts) if len(parts) > 1 else None


def _join(left: Pair, right: Pair) -> Pair:
    source, target = map(join_texts, left[:2], right[:2])
    if left.alignment is None or right.alignment is None:
        return Pair(source, target)
    i, j = len(split_words(source)), len(split_words(target))
    # Without a space between them, a word of both has the links of both.
    i, j = i - len(split_words(right.source)), j - len(split_words(right.target))
    return Pair(source, target, (*left.alignment, *((i + a, j + b) for a, b in right.alignment)))


def copied(pairs: Sequence[Pair], random: Random, words: Words, make: Make | None = None) -> Pair:
    """Adds the same string to both sides of a pair.

    The string replaces a number or a name that occurs once on both sides, or is put next to the
    text. `make` generates the string: by default, a name, a number or a placeholder of the model.
    """
    source, target = pairs[0].source, pairs[0].target
    shared = [
        token.text
        for token in words.tokens(source)
        if token.text.isdigit() or (token.is_word and has_capital(token.text[0]))
        if len(token.text) > 1 and source.count(token.text) == target.count(token.text) == 1
    ]
    if random.random() < ALONE and make is None:
        return Pair(string := draw_string(random, words), string)
    if shared and random.random() < ALIGNED:
        word = random.choice(shared)
        string = (make or (draw_number if word.isdigit() else draw_name))(random)
        return _modify_both(pairs[0], lambda text: text.replace(word, string))
    string = make(random) if make else draw_string(random, words)
    frame = random.choice(FRAMES)

    def put(text: str) -> str:
        plain = FINAL.sub("", text)
        return frame.format(string, plain, text[len(plain) :])

    return _modify_both(pairs[0], put)


def learn_lexicon(pairs: Iterable[Pair]) -> Lexicon:
    """Returns the target words that pairs link to each source word, which is in lower case."""
    forms = collections.defaultdict(set)
    for pair in pairs:
        words = [[CORE.findall(word)[0][1] for word in split_words(text)] for text in pair[:2]]
        for i, j in pair.alignment or ():
            forms[words[0][i].lower()].add(words[1][j] or words[0][i])
    return {word: sorted(each) for word, each in forms.items()}


def glossary(pairs: Sequence[Pair], random: Random, words: Words, lexicon: Lexicon) -> Pair:
    """Writes translations into the source, after its words, if words are linked.

    A translation is that of the target, or another form of it, which leaves inflection to the
    model, or another word, which then is also in the target.
    Source: Dinu et al. 2019, "Training Neural Machine Translation to Apply Terminology
    Constraints"; Bergmanis and Pinnis 2021, "Facilitating Terminology Translation".
    """
    sides, count = [split_words(text) for text in pairs[0][:2]], random.randint(1, MAX_TERMS)
    spans = _linked_spans(pairs[0].alignment or ())
    spans.sort(key=lambda span: random.random() * (span[1] - span[0]))  # short ones first
    for i, end, j, stop in spans:
        texts = " ".join(sides[0][i:end]), " ".join(sides[1][j:stop])
        if not count or any(symbol in text for symbol in words.symbols for text in texts):
            continue
        (before, word, after), (start, term, rest) = (CORE.findall(text)[0] for text in texts)
        if not (word and term) or max(len(word), len(term)) < LONG_WORD:
            continue
        if (level := random.random()) < OTHER_WORD:
            others = draw_name(random), random.choice(lexicon[random.choice([*lexicon])])
            term = random.choice(others)
            sides[1][j:stop] = [start + term + rest, *[""] * (stop - j - 1)]
        elif level < OTHER_WORD + OTHER_FORM or not j:  # the first word may have a capital
            forms = lexicon.get(word.lower(), ())
            term = random.choice([x for x in forms if x != term and shares_stem(x, term)] or [term])
        # A symbol in place of the further words, so that no other term has them.
        source = f"{before}{word}{TERM[0]} {term}{TERM[1]}{after}"
        sides[0][i:end] = [source, *TERM[1:] * (end - i - 1)]
        count -= 1
    source = " ".join(word for word in sides[0] if word != TERM[1])
    return move_links(pairs[0], source, " ".join(filter(None, sides[1])))


def _linked_spans(links: Sequence[tuple[int, int]]) -> list[tuple[int, int, int, int]]:
    """Returns spans i:end of source words and j:stop of target words, linked to each other only."""
    spans = []
    for i, size in itertools.product(sorted({i for i, _ in links}), range(1, MAX_SPAN + 1)):
        targets = sorted({j for a, j in links if i <= a < i + size})
        is_whole = {a for a, j in links if j in targets} == {*range(i, i + size)}
        if is_whole and targets[-1] - targets[0] + 1 == len(targets) <= MAX_SPAN:
            spans.append((i, i + size, targets[0], targets[-1] + 1))
    return spans


def _modify_both(pair: Pair, change: Callable[[str], str]) -> Pair:
    return move_links(pair, change(pair.source), change(pair.target))


MODIFIERS: Mapping[str, Modifier] = {
    "capitals": in_case("capitals"),
    "title": in_case("title"),
    "typos": typos,
    "punctuation": punctuation,
    "joined": joined,
    "copied": copied,
}
AUGMENTED = ("typos", "punctuation", "joined", "copied", "glossary")  # modifiers of training pairs
MAX_PAIRS = 3  # maximum number of pairs that a modifier reads


def draw_name(random: Random) -> str:
    """Generates one or two words that look like names but rarely are real names."""

    def word() -> str:
        parts = (ONSETS, VOWELS) * random.choice((2, 2, 3)) + (CODAS,)
        letters = "".join(random.choice(part.split(" ")) for part in parts)
        latin = (chr(random.choice(LATIN)) if random.random() < ACCENTED else a for a in letters)
        return "".join(filter(str.isalpha, "".join(latin).capitalize()))

    name = random.choice((" ", " ", "-", "'")).join(word() for _ in range(random.choice((1, 1, 2))))
    return random.choice((str, _without_accents))(name)


def draw_number(random: Random) -> str:
    """Generates a number of two to five digits."""
    return str(random.randrange(10, 10 ** random.randrange(2, 6)))


def draw_string(random: Random, words: Words) -> str:
    """Generates a name, a number or a placeholder of the model."""
    strings = draw_name(random), draw_name(random), draw_number(random)
    names = [name for name in NAMES if name in words.symbols]
    return random.choice((*strings, random.choice(names)) if names else strings)


def _misspell(word: str, random: Random) -> str:
    """Swaps two letters of a word, or omits, doubles or replaces one letter."""
    place = random.randrange(len(word) - 1)
    a, b = word[place], word[place + 1]
    edits = [edit for edit in (b + a, b, a + a + b, random.choice(word) + b) if edit != a + b]
    return word[:place] + random.choice(edits) + word[place + 2 :]


def _without_accents(text: str) -> str:
    marks = unicodedata.normalize("NFD", text)
    plain = "".join(character for character in marks if unicodedata.combining(character) < ACCENTS)
    return unicodedata.normalize("NFC", plain)


class Augmentation(NamedTuple):
    """Applies each modifier to a fraction of the training pairs; see `modify`."""

    fractions: Mapping[str, float]
    words: Words

    @property
    def key(self) -> tuple[object, ...]:
        """The values that the samples depend on, or () if there are no modifiers."""
        rule = MODIFIER_RULE, *self.words.languages
        return (*rule, *self.fractions.items()) if self.fractions else ()

    def draw(self, pairs: Callable, random: Random, lexicon: Callable) -> Pair | None:
        """Applies a random modifier to the first of `pairs()`; returns None if nothing changes."""
        level = random.random()
        for name, fraction in self.fractions.items():
            level -= fraction
            if level < 0:
                texts = pairs()
                modifier = MODIFIERS.get(name) or functools.partial(glossary, lexicon=lexicon())
                pair = modify(modifier, texts, random, self.words)
                return pair if pair != texts[0] else None
        return None


def modify(modifier: Modifier, pairs: Sequence[Pair], random: Random, words: Words) -> Pair:
    """Applies a modifier to the first pair; returns the original pair if there is no change.

    Symbols are not modified. Symbols at the start of a source sentence, such as tags, stay there.
    """
    texts = [_after_tags(pair.source, words) for pair in pairs]
    tags = [pair.source.removesuffix(text) for pair, text in zip(pairs, texts, strict=True)]
    both = zip(pairs, texts, tags, strict=True)
    same = [move_links(pair, text, pair.target) for pair, text, tag in both if tag == tags[0]]
    changed = modifier(same, random, words)
    if changed is None or changed.source == same[0].source:  # another target would be ambiguous
        return pairs[0]
    changed = move_links(changed, tags[0] + changed.source, changed.target)
    return _modify_both(changed, canonicalize)


def _after_tags(text: str, words: Words) -> str:
    """Removes the symbols at the start of a source sentence, if they are followed by text."""
    ends = (len(symbol) for symbol in words.symbols if text.startswith(symbol))
    rest = text[max(ends, default=0) :].lstrip()
    return _after_tags(rest, words) if rest and len(rest) < len(text) else rest or text


def augmentation_of(data: ConfigDict, symbols: Sequence[str] = ()) -> Augmentation:
    """Returns the augmentation configured in `config.data`."""
    fractions = {name: part for name in AUGMENTED if (part := data[f"augment_{name}"])}
    return Augmentation(fractions, Words(languages=languages_of(data), symbols=tuple(symbols)))


def check_augmentation(data: ConfigDict, tokenizer: ConfigDict, unpaired: str) -> None:
    """Raises UserError if the `data.augment_*` sum exceeds 1, or if a task cannot use these keys.

    `unpaired` is the name of the task if it has no sentence pairs, and '' otherwise.
    """
    keys = {f"data.augment_{name}": data[f"augment_{name}"] for name in AUGMENTED}
    if (total := sum(keys.values())) > 1 + 1e-9:
        shown = " ".join(f"{key}={fraction:g}" for key, fraction in keys.items() if fraction)
        raise UserError(f"{shown} add to {total:g}: lower them, to a sum of at most 1")
    keys |= {f"tokenizer.{key}": tokenizer[key] for key in (*KEYS.values(), "placeholders")}
    for key, value in keys.items() if unpaired else ():
        if value:
            raise UserError(
                f"{key}={value} changes sentence pairs, and config.task={unpaired} has none: leave "
                "it at its default"
            )
