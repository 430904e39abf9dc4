"""Toy reviews: short synthetic film reviews with classes that depend on word order.

A review of a kind other than "plain" contains one favourable and one unfavourable word. It has a
twin of the opposite class, in which these two words are swapped and all other words are the same:

    negation         not a dull film but a charming one            (twin: not a charming ... a dull)
    double negation  nobody can say that the plot is not clever , or that it is silly
    intensifier      the plot is slightly silly , the music utterly brilliant
    contrast         the acting is dull , but the story is wonderful
    concession       the story is wonderful , although the acting is dull
    mockery          this brilliant film mocks its dull critics (which word describes which noun?)

Both twins are in the split that the favourable twin is assigned to. So a model that ignores word
order, such as a mean of embeddings, has exactly 50% accuracy on these kinds. The last sentiment
word does not always determine the class, either. A "plain" review has words of only one class, and
its twin has their antonyms. Words have no capitals or commas that would reveal their positions.
"""

import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from transformer.data.pairs import Labelled
from transformer.data.synthetic import fill, read_tables

Option = TypeVar("Option")

POSITIVE, NEGATIVE = "positive", "negative"
PLAIN_FRACTION = 0.25  # fraction of plain reviews; the other kinds are equally frequent
TABLES = read_tables(Path(__file__).with_name("toy_reviews.txt"))
LISTS = ("adjectives", "characters", "nouns", "praised")
WORDS = {name: tuple(zip(*TABLES[name], strict=True)) for name in LISTS}  # favourable, unfavourable
FILLERS = {name: words for name, *words in TABLES["fillers"]}
OPENINGS = [f"{words} " if words else "" for [words] in TABLES["openings"]]
# The last sections of the file have a word list and a template in each row.
PATTERNS = tuple(TABLES)[list(TABLES).index("plain") :]


def generate(seed: int, sizes: Mapping[str, int]) -> dict[str, list[Labelled]]:
    """Returns distinct reviews for each split in `sizes`, as twins with the favourable first."""
    uniform = random.Random(seed).random

    def pick(options: Sequence[Option]) -> Option:
        return options[int(uniform() * len(options))]

    def draw() -> list[Labelled]:
        kind = "plain" if uniform() < PLAIN_FRACTION else pick(PATTERNS[1:])
        (name, template), opening = pick(TABLES[kind]), pick(OPENINGS)
        fillers = {name: pick(options) for name, options in FILLERS.items()}
        fillers["other"] = pick([part for part in FILLERS["part"] if part != fillers["part"]])
        good, bad = map(pick, WORDS[name])
        if kind == "plain":
            bad = dict(TABLES[name])[good]
        twins = []
        for yes, no, label in ((good, bad, POSITIVE), (bad, good, NEGATIVE)):
            text = re.sub(r"\ba (?=[aeiou])", "an ", template.format(yes=yes, no=no, **fillers))
            twins.append(Labelled(opening + text, label, kind))
        return twins

    return fill(draw, lambda review: review.text, sizes)
