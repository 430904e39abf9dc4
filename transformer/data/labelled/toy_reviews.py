"""Toy reviews: short synthetic reviews of films whose class depends on word order.

A review of a kind other than "plain" holds one favourable and one unfavourable word. It has a twin
of exactly the same words, in which those two have changed places and which says the opposite:

    negation         not a dull film but a charming one            (twin: not a charming ... a dull)
    double negation  nobody can say that the plot is not clever , or that it is silly
    intensifier      the plot is slightly silly , the music utterly brilliant
    contrast         the acting is dull , but the story is wonderful
    concession       the story is wonderful , although the acting is dull
    mockery          this brilliant film mocks its dull critics (who is described by which word?)

Twins are drawn together into one split. So a model that ignores word order, such as the mean of
embeddings, is right on exactly half of these kinds; nor does the last such word always decide. A
"plain" review has words of one side only, and its twin has their antonyms.

Text is lowercased, with spaces around punctuation, as SST-2 has it: no capital and no comma that
sticks to a word tells where the word stands.

Splits. The favourable one of two twins decides, see `splits`.
"""

import random
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from transformer.data.labels import Labelled
from transformer.data.splits import fill

Option = TypeVar("Option")

POSITIVE, NEGATIVE = "positive", "negative"
PLAIN_FRACTION = 0.25  # of the reviews; the other kinds share the rest equally


def _words(text: str) -> list[str]:
    return text.split()


# Favourable and unfavourable words; in plain reviews those at one place are antonyms.
ADJECTIVES = (
    _words(
        "good wonderful brilliant excellent superb beautiful fresh exciting gripping moving funny "
        "warm original convincing elegant memorable great delightful masterful perfect"
    ),
    _words(
        "bad terrible stupid awful miserable ugly stale boring tedious hollow humourless cold "
        "derivative implausible clumsy forgettable poor dreadful amateurish ridiculous"
    ),
)
# Of people as well as of films.
CHARACTERS = (
    _words("brilliant clever charming witty inspired likeable sensible graceful lively bold"),
    _words("dull silly unpleasant humourless confused tiresome foolish clumsy lifeless phoney"),
)
NOUNS = (
    _words("masterpiece triumph joy delight success treat gem marvel"),
    _words("disaster failure mess bore flop nuisance mistake catastrophe"),
)
PRAISED = (
    _words("praised loved admired recommended applauded celebrated"),
    _words("mocked hated despised dismissed ridiculed condemned"),
)

FILLERS = {
    "film": _words("film movie comedy drama thriller western sequel remake picture documentary"),
    "part": _words(
        "acting story plot music cast script dialogue photography direction ending humour "
        "opening editing pace soundtrack"
    ),
    "very": _words("very really truly quite"),
    "utterly": _words("absolutely utterly completely thoroughly"),
    "slightly": _words("slightly somewhat mildly faintly"),
    "never": _words("never hardly not scarcely"),
    "people": _words("critics viewers rivals reviewers fans"),
    "person": _words("painter soldier teacher singer king detective boxer farmer"),
    "nobody": ["nobody", "no one", "not one critic", "no friend of mine"],
}
OPENINGS = (
    *[""] * 3,
    "frankly , ",
    "in the end , ",
    "to my mind , ",
    "all in all , ",
    "believe me , ",
)


class Template(NamedTuple):
    """A review with places for a word of each side and for `FILLERS`.

    `yes` is what the review says of the film, and decides; `no` is of the other side, and is
    denied, outweighed or said of others. `other` is another `part`. If an "a" stands before one
    of the two, it stands before both, so that twins have equally many "an".
    """

    text: str
    words: tuple[list[str], list[str]] = ADJECTIVES


TEMPLATES = {
    "plain": (
        Template("the {part} is {very} {yes} ."),
        Template("the {part} of this {film} is {very} {yes} ."),
        Template("this {film} is {yes} , and the {part} is {yes} too ."),
        Template("a {utterly} {yes} {film} with a {slightly} old-fashioned {part} ."),
        Template("this {film} is a {yes} , above all for its {part} .", NOUNS),
        Template("we {yes} the {part} , and so did all the {people} .", PRAISED),
        Template("this is a {yes} {film} about a {person} .", CHARACTERS),
    ),
    "negation": (
        Template("this is not a {no} {film} but a {yes} one ."),
        Template("it is a {yes} {film} , not a {no} one ."),
        Template("the {part} is {never} {no} and always {yes} ."),
        Template("the {part} is {very} {yes} and {never} {no} ."),
        Template("{never} a {no} {film} , this is simply a {yes} one ."),
        Template("the {part} is not {no} , and the {other} is {yes} ."),
        Template("the {part} is {yes} , and the {other} is not {no} ."),
        Template("{never} a {no} , this {film} is simply a {yes} .", NOUNS),
        Template("this {film} is a {yes} and {never} a {no} .", NOUNS),
    ),
    "double negation": (
        Template("{nobody} can say that the {part} is not {yes} , or that it is {no} ."),
        Template("{nobody} can say that the {part} is {no} , or that it is not {yes} ."),
        Template("{nobody} would deny that the {part} is {yes} , or claim that it is {no} ."),
        Template("{nobody} would claim that the {part} is {no} , or deny that it is {yes} ."),
        Template("it is wrong that this {film} is {no} , and as wrong that it is not {yes} ."),
        Template("it is wrong that this {film} is not {yes} , and as wrong that it is {no} ."),
    ),
    "intensifier": (
        Template("the {part} is {slightly} {no} , the {other} {utterly} {yes} ."),
        Template("the {part} is {utterly} {yes} , the {other} {slightly} {no} ."),
        Template("a {utterly} {yes} {film} with a {slightly} {no} {part} ."),
        Template("with a {slightly} {no} {part} , this is a {utterly} {yes} {film} ."),
    ),
    "contrast": (
        Template("the {part} is {no} , but the {other} is {yes} ."),
        Template("the {part} of this {film} is {no} , but the {other} makes it {yes} ."),
        Template("the {people} called it {no} , but we found the {part} {very} {yes} ."),
        Template("it looked {no} , but from the middle on this {film} is {yes} ."),
        Template("it looked like a {no} , but this {film} is a {yes} .", NOUNS),
        Template("the {people} {no} this {film} , but all of us {yes} it .", PRAISED),
    ),
    "concession": (
        Template("although the {part} is {no} , the {other} is {yes} ."),
        Template("the {part} is {yes} , although the {other} is {no} ."),
        Template("even though it starts {no} , this {film} turns out {yes} ."),
        Template("this {film} turns out {yes} , even though it starts {no} ."),
        Template("despite its {no} {part} , this {film} is {yes} ."),
        Template("this {film} is {yes} , despite its {no} {part} ."),
    ),
    "mockery": (
        Template("this {yes} {film} mocks its {no} {people} .", CHARACTERS),
        Template("its {no} {people} are mocked by this {yes} {film} .", CHARACTERS),
        Template("{no} {people} may despise this {yes} {film} .", CHARACTERS),
        Template("only {no} {people} could hate a {film} as {yes} as this .", CHARACTERS),
        Template("a {yes} portrait of a {no} {person} .", CHARACTERS),
        Template("the {person} is {no} , the {film} about him {yes} .", CHARACTERS),
        Template("the {film} is {yes} , the {person} in it {no} .", CHARACTERS),
        Template("this {yes} of a {film} mocks every {no} of the year .", NOUNS),
        Template("this {yes} was called a {no} by its {people} .", NOUNS),
        Template("those who {no} this {film} were wrong , those who {yes} it right .", PRAISED),
        Template("the {people} who {yes} it were right , those who {no} it wrong .", PRAISED),
    ),
}
KINDS = tuple(TEMPLATES)


def generate(seed: int, sizes: Mapping[str, int]) -> dict[str, list[Labelled]]:
    """Reviews with their labels and kinds; half of each split is favourable.

    Args:
      seed: any integer; equal seeds give equal corpora on every platform.
      sizes: reviews for each of the splits "train", "validation" and "test" that is wanted.

    Returns:
      The reviews of each split, each favourable one before its twin. No review occurs twice,
      within or across splits.

    Raises:
      UserError: a size is negative, or more than there are different reviews.
    """
    uniform = random.Random(seed).random

    def pick(options: Sequence[Option]) -> Option:
        return options[int(uniform() * len(options))]

    def draw() -> list[Labelled]:
        kind = "plain" if uniform() < PLAIN_FRACTION else pick(KINDS[1:])
        template, opening = pick(TEMPLATES[kind]), pick(OPENINGS)
        fillers = {name: pick(options) for name, options in FILLERS.items()}
        fillers["other"] = pick([part for part in FILLERS["part"] if part != fillers["part"]])
        good, bad = map(pick, template.words)
        if kind == "plain":
            bad = template.words[1][template.words[0].index(good)]
        twins = ((good, bad, POSITIVE), (bad, good, NEGATIVE))
        return [
            Labelled(_join(opening, template.text.format(yes=yes, no=no, **fillers)), label, kind)
            for yes, no, label in twins
        ]

    return fill(draw, lambda review: review.text, sizes)


def _join(opening: str, text: str) -> str:
    return opening + re.sub(r"\ba (?=[aeiou])", "an ", text)
