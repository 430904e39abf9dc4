"""Tags come back around the words that align with what they enclosed."""

import itertools
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.data.formats.tags import CLOSE, EMPTY, OPEN, WORD, Tag, place_tags, plain_text

TAG = re.compile(r"<(/?)(\w+)(/?)>")


def pieces_of(text: str, start: int = 0) -> list:
    """The pieces of a text with tags such as <b>, </b>, <x/> and <br/>."""
    pieces, position = [], 0
    for match in TAG.finditer(text):
        pieces += [text[position : match.start()]] * (position < match.start())
        kind = CLOSE if match[1] else OPEN if not match[3] else WORD if match[2] == "c" else EMPTY
        place = start + match.start(), start + match.end()
        pieces.append(Tag(kind, place, breaks=match[2] == "br"))
        position = match.end()
    return pieces + [text[position:]] * (position < len(text))


def text_of(pieces, source: str) -> str:
    return "".join(x if isinstance(x, str) else source[slice(*x.place)] for x in pieces)


def place(source: str, target: str, links: str | list) -> str:
    if isinstance(links, str):
        links = [tuple(map(int, link.split("-"))) for link in links.split()]
    return text_of(place_tags(pieces_of(source), target, links), source)


@pytest.mark.parametrize(
    ("source", "target", "links", "result"),
    [
        (  # words in another order
            *("He sees <b>the red house</b> today.", "Heute sieht er das rote Haus."),
            *("0-2 1-1 2-3 3-4 4-5 5-0", "Heute sieht er <b>das rote Haus</b>."),
        ),
        ("<b>red</b> <i>house</i>", "casa roja", "0-1 1-0", "<i>casa</i> <b>roja</b>"),
        ("<b>a b</b> c", "x y z", "0-0 1-0 2-2", "<b>x</b> y z"),  # many to one
        ("<b>a</b> b", "x y z", "0-0 0-2 1-1", "<b>x y z</b>"),  # one to many, with a gap
        (  # the shorter one of two that overlap stays
            *("<b>has seen</b> <i>the dog</i>.", "hat den Hund gesehen."),
            *("0-0 1-3 2-1 3-2", "<b>hat</b> <i>den Hund</i> gesehen."),
        ),
        ("a <b>b</b> c", "x z", "0-0 2-1", "x <b></b>z"),  # no link
        ("a <b>b</b>", "x", "0-0", "x<b></b>"),
        ("a<br/>b <x/> c<y/>", "z y x", "0-2 1-1 2-0", "<x/> z<y/><br/>y x"),  # empty tags
        ("<b><i>a</i></b><u>b</u>", "x", "0-0", "<b><i>x</i></b><u></u>"),  # of one word
        ("un<b>believ</b>able", "unglaublich", "0-0", "<b>unglaublich</b>"),
        ("<a>x <b>y</b></a>, z", "z, y x", "0-2 1-1 2-0", "z, <a><b>y</b> x</a>"),
        ("<b>Hello </b>world<x/>.", "Hallo Welt.", "0-0 1-1", "<b>Hallo </b>Welt<x/>."),
        ("see<x/> him<y/> now", "ihn sehen", "0-1 1-0", "ihn<y/> sehen<x/>"),  # marks
        ("at dawn<x/>. Go", "Geh früh, los", "1-1 2-0", "Geh früh<x/>, los"),
        ("Run <c/>.", "Lauf.", "0-0", "Lauf <c/>."),  # a code with a text stands as a word
        ("Run <b><c/></b> now", "Jetzt lauf", "0-1 1-0", "<b><c/></b> Jetzt lauf"),
        ("Run <b><c/></b>.", "Lauf.", "0-0", "Lauf <b><c/></b>."),
        ("Run <c/>.", "Lauf los.", "0-0", "Lauf <c/> los."),
        ("Run <x/>.", "Lauf.", "0-0", "Lauf. <x/>"),
        ("<b>here</b> now.", "jetzt hier.", "0-1 1-0", "jetzt <b>hier</b>."),
        ("Go <b>now.</b>", "Jetzt gehen.", "0-1 1-0", "<b>Jetzt</b> gehen."),
        ("(<b>a</b>) b", "y (x)", "0-1 1-0", "y (<b>x</b>)"),
        ("a </b>b <i>c", "x y z", "0-0 1-1 2-2", "x </b>y <i>z"),  # without a partner
        ("a <b> \n</b> <i>-</i>", "x –", "0-0", "x – <b> \n</b> <i></i>"),
    ],
)
def test_tags_enclose_the_words_that_align(source, target, links, result):
    assert place(source, target, links) == result


WORDS = ["a", "bb", "(c)", "d,", "e.", "f-g", "–", "„h“", "3.5", "i!"]
GAPS = "", " ", " ", "  ", "\n"


def tree(draw: random.Random, depth: int = 0) -> str:
    """A text with random tags, also within words, without and next to white space."""
    parts = []
    for _ in range(draw.randint(1, 4)):
        inner = tree(draw, depth + 1) if draw.random() < 0.6 - 0.2 * depth else draw.choice(WORDS)
        name = draw.choice("bij")
        part = draw.choice([inner, f"<{name}>{inner}</{name}>", f"<{name}></{name}>", "<x/>"])
        parts += [draw.choice(GAPS), draw.choice([inner, part, part, "<br/>"]), draw.choice(GAPS)]
    return "".join(parts)


def faults(source: str, target: str, result: str) -> list[str]:
    """What is wrong with a translation with tags."""
    tags, is_wrong = [match[0] for match in TAG.finditer(result)], []
    if sorted(tags) != sorted(match[0] for match in TAG.finditer(source)):
        is_wrong.append("another number of tags")
    for raw, order in ((source, []), (result, [])):
        for tag in TAG.findall(raw):
            order += [tag[1]] * (not tag[0] and not tag[2])
            if tag[0] and (not order or order.pop() != tag[1]):
                is_wrong.append(f"not nested: {raw}")
    if re.search(r"\w(<[^>]*>)+\w", result.replace("<br/>", " ")):
        is_wrong.append("a tag in a word")
    if TAG.sub("", result.replace("<br/>", " ")).split() != target.split():
        is_wrong.append("other words")
    return is_wrong


def check(seed: int) -> None:
    draw = random.Random(seed)
    source, words = tree(draw), [draw.choice(WORDS) for _ in range(draw.randint(0, 8))]
    count = len(plain_text(pieces_of(source)).split())
    pairs = [*itertools.product(range(count), range(len(words)))]
    target, links = " ".join(words), draw.sample(pairs, min(len(pairs), draw.randint(0, 9)))
    result = place(source, target, links)
    assert faults(source, target, result) == [], (source, target, links, result)


SEEDS = st.integers(0, 2**32)
many = given(SEEDS)(check)  # deadlines would fail on a busy machine
test_tags_come_back_nested_and_never_in_a_word = settings(max_examples=200, deadline=None)(many)
test_2000_trees = pytest.mark.full(
    settings(max_examples=2000, deadline=None)(given(SEEDS)(check)),
)


@pytest.mark.parametrize(
    ("result", "fault"),
    [
        ("<b>x y", "another number"),
        ("<b>x</i> <i>y</b>", "not nested"),
        ("<b>x<i></b></i> y", "not nested"),
        ("<b><i></i>x</b>y", "in a word"),
        ("<b>x</b> <i>z</i>", "other words"),
    ],
)
def test_the_check_can_fail(result, fault):
    assert any(fault in each for each in faults("<b>a</b> <i>b</i>", "x y", result))


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_a_text_that_stays_the_same_keeps_its_tags_and_white_space(seed):
    draw = random.Random(seed)
    words = draw.choices(WORDS, k=9)
    edges, parts = sorted(draw.sample(range(10), 6)), [*words]
    for n, (start, end) in enumerate(zip(edges[::2], edges[1::2], strict=True)):
        space = draw.choice(["", " ", "\n "])
        parts[start] = f"<b>{space}<i>{parts[start]}"
        parts[end - 1] += f"</i>{space}</b>" + n % 2 * "<x/>"
    links = [(i, i) for i in range(len(words))]
    assert place(" ".join(parts), " ".join(words), links) == " ".join(parts)
