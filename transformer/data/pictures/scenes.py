"""Scenes: generated images of coloured shapes, with captions, and questions with exact answers.

A scene has three to six objects in different cells of a grid, each with a shape, a size, and a
unique colour. A question describes an object by the fewest words that identify it. Question kinds:

    colour   what colour is the small circle ?
    shape    what shape is the red thing ?
    size     what size is the red square ?
    where    where is the red thing ?
    count    how many small things are there ?
    left     is the red thing left of the small square ?
    same     is the red thing of the same shape as the blue thing ?
    closest  what colour is the thing closest to the blue triangle ?

First, the answer is sampled, uniformly for each kind, and then a scene with this answer. So the
question without the image says little about the answer. Bounding boxes of objects that an answer
depends on are known, for comparison with attention. A caption lists all objects row by row:

    a small red circle , a large blue square and a small green triangle

Source: the kinds are from Johnson et al. 2017, "CLEVR", and Santoro et al. 2017, section 4
("Sort-of-CLEVR"), which also asks for the closest object.
"""

import functools
import itertools
import operator
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, UInt8

CELLS, CELL = 4, 12  # cells per side of an image, and pixels per side of a cell
SIDE = CELLS * CELL  # pixels per side of an image
THINGS = (3, 6)  # minimum and maximum number of objects in a scene
COLOURS = {
    "red": (214, 39, 40),
    "green": (44, 160, 44),
    "blue": (31, 119, 255),
    "yellow": (240, 220, 40),
    "purple": (150, 60, 190),
    "cyan": (60, 220, 230),
}
SHAPES = ("circle", "square", "triangle")
RADII = {"small": 3.2, "large": 5.2}  # pixels
ATTRIBUTES = {"colour": tuple(COLOURS), "shape": SHAPES, "size": tuple(RADII)}
YES_NO = ("yes", "no")
QUARTERS = ("upper left", "upper right", "lower left", "lower right")
# The possible answers for each kind of question but "closest", which asks for any attribute.
ANSWERS = ATTRIBUTES | {"where": QUARTERS, "count": ("0", "1", "2", "3"), "left": YES_NO}
ANSWERS |= {"same": YES_NO}
KINDS = (*ANSWERS, "closest")
BACKGROUND, NOISE = 128, 12.0  # grey level, and standard deviation of pixel noise
MARGIN = 0.8  # maximum ratio of the distances to the closest and to the next object


class Thing(NamedTuple):
    """An object in a scene, with its centre in pixels from the top-left corner."""

    colour: str
    shape: str
    size: str
    x: float
    y: float

    @property
    def box(self) -> tuple[int, ...]:
        """The bounding box of the object's pixels; see `LabelledPicture`."""
        radius = RADII[self.size]
        corners = self.x - radius, self.y - radius, self.x + radius, self.y + radius
        return tuple(min(SIDE, max(0, round(corner))) for corner in corners)


class Question(NamedTuple):
    """A question about a scene, its answer, and the objects that the answer depends on.

    If `text` is empty, the answer is a caption.
    """

    things: tuple[Thing, ...]
    text: str
    answer: str
    kind: str
    relevant: tuple[Thing, ...]


def generate(seed: int, count: int) -> Iterator[Question]:
    """Yields `count` questions, each about a new scene."""
    draw = random.Random(seed)
    for _ in range(count):
        kind = draw.choice(KINDS)
        # The attribute to ask for. Only "closest" may ask for colours, which are unique in a scene.
        asked = draw.choice(tuple(ATTRIBUTES)[kind != "closest" :])
        answer = draw.choice(ANSWERS.get(kind) or ATTRIBUTES[asked])
        value = draw.choice(ATTRIBUTES[asked])
        while True:
            things = _draw_scene(draw)
            questions = _ask_question(kind, asked, value, things, draw)
            if fitting := [each for each in questions if each.answer == answer]:
                yield draw.choice(fitting)
                break


def describe(seed: int, count: int) -> Iterator[Question]:
    """Yields `count` scenes with captions, which describe all objects in order."""
    draw = random.Random(seed)
    for _ in range(count):
        things = sorted(_draw_scene(draw), key=lambda thing: (thing.y // CELL, thing.x))
        *first, last = (f"a {each.size} {each.colour} {each.shape}" for each in things)
        yield Question(tuple(things), "", f"{' , '.join(first)} and {last}", "", tuple(things))


def _draw_scene(draw: random.Random) -> tuple[Thing, ...]:
    cells = draw.sample(range(CELLS**2), draw.randint(*THINGS))
    colours = draw.sample(tuple(COLOURS), len(cells))
    things = []
    for cell, colour in zip(cells, colours, strict=True):
        y, x = (CELL * (place + 0.5) + draw.uniform(-1, 1) for place in divmod(cell, CELLS))
        things.append(Thing(colour, draw.choice(SHAPES), draw.choice(tuple(RADII)), x, y))
    return tuple(things)


def _ask_question(
    kind: str, asked: str, value: str, things: tuple[Thing, ...], draw: random.Random
) -> Iterator[Question]:
    """Yields the questions of a kind that can be answered from a scene."""
    if kind == "count":
        what = {"colour": f"{value} things", "shape": f"{value}s", "size": f"{value} things"}
        counted = tuple(thing for thing in things if getattr(thing, asked) == value)
        text = f"how many {what[asked]} are there ?"
        yield Question(things, text, str(len(counted)), kind, counted)
        return
    hidden = asked if kind == "same" else kind  # only the name of an attribute hides a word
    for named in itertools.permutations(things, 2 if kind in ("left", "same") else 1):
        a, b, fits = named[0], named[-1], True
        if kind == "where":
            text, answer = "where is {} ?", QUARTERS[2 * (a.y > SIDE / 2) + (a.x > SIDE / 2)]
        elif kind == "left":
            text, answer = "is {} left of {} ?", YES_NO[a.x > b.x]
            fits = abs(a.x - b.x) >= CELL / 2
        elif kind == "same":
            text = f"is {{}} of the same {asked} as {{}} ?"
            answer = YES_NO[getattr(a, asked) != getattr(b, asked)]
        elif kind == "closest":
            _, b, next_one, *_ = sorted(things, key=functools.partial(_distance_between, a))
            text, answer = f"what {asked} is the thing closest to {{}} ?", getattr(b, asked)
            fits = _distance_between(a, b) <= MARGIN * _distance_between(a, next_one)
        else:
            text, answer = f"what {kind} is {{}} ?", getattr(a, kind)
        phrases = (_phrases(thing, hidden, things, draw) for thing in named if fits)
        for words in zip(*phrases, strict=False):
            relevant = tuple(dict.fromkeys((a, b)))
            yield Question(things, text.format(*words), answer, kind, relevant)


def _distance_between(a: Thing, b: Thing) -> float:
    return ((a.x - b.x) ** 2 + (a.y - b.y) ** 2) ** 0.5


def _phrases(
    thing: Thing, hidden: str, things: Sequence[Thing], draw: random.Random
) -> Iterator[str]:
    """Yields a shortest unique description that omits the attribute `hidden`, if there is one."""
    usable = [name for name in ATTRIBUTES if name != hidden]
    for length in range(1, len(usable) + 1):
        unique = [
            names
            for names in itertools.combinations(usable, length)
            for values in [[*map(operator.attrgetter(*names), things)]]
            if values.count(operator.attrgetter(*names)(thing)) == 1
        ]
        if unique:
            names = draw.choice(unique)
            words = [getattr(thing, name) for name in ("size", "colour") if name in names]
            yield " ".join(["the", *words, thing.shape if "shape" in names else "thing"])
            return


# -- images

_Y, _X = np.mgrid[:SIDE, :SIDE] + 0.5  # pixel centres


def render(things: Sequence[Thing], noise: np.random.Generator) -> UInt8[np.ndarray, "S S 3"]:
    """Renders a scene as an RGB image, with the origin in the top-left corner."""
    picture = np.full((SIDE, SIDE, 3), BACKGROUND, np.float32)
    for thing in things:
        colour = COLOURS[thing.colour] + noise.normal(0, NOISE, 3)
        x0, y0, x1, y1 = thing.box
        place = slice(y0, y1), slice(x0, x1)
        picture[place][_inside_shape(thing, _X[place], _Y[place])] = colour
    picture += NOISE / 4 * noise.standard_normal(picture.shape, np.float32)
    return picture.clip(0, 255).astype(np.uint8)


def _inside_shape(
    thing: Thing, x: Float[np.ndarray, "h w"], y: Float[np.ndarray, "h w"]
) -> Bool[np.ndarray, "h w"]:
    x, y, radius = np.abs(x - thing.x), y - thing.y, RADII[thing.size]
    if thing.shape == "circle":
        return x**2 + y**2 <= radius**2
    if thing.shape == "square":
        return np.maximum(x, np.abs(y)) <= 0.88 * radius
    return (np.abs(y) <= radius) & (x <= (y + radius) / 2)
