"""Scenes are what they were, with their questions and answers, and are drawn as they say."""

import zlib

import numpy as np

from transformer.data.pictures import scenes
from transformer.data.pictures.scenes import SIDE

QUESTIONS = list(scenes.generate(3, 1400))


def test_the_scenes_behind_published_numbers_are_what_they_were():
    content = [*QUESTIONS, *scenes.describe(3, 100)]
    assert zlib.crc32(repr(content).encode()) == 4047873328


def test_a_thing_is_drawn_in_its_box_and_in_its_colour():
    noise = np.random.default_rng(0)
    for each in QUESTIONS[:50]:
        picture = scenes.render(each.things, noise).astype(int)
        assert picture.shape == (SIDE, SIDE, 3)
        outside = np.ones((SIDE, SIDE), bool)
        for thing in each.things:
            left, top, right, bottom = thing.box
            outside[top:bottom, left:right] = False
            middle = picture[round(thing.y), round(thing.x)]
            nearest = min(scenes.COLOURS, key=lambda c: np.abs(middle - scenes.COLOURS[c]).sum())
            assert nearest == thing.colour
        assert np.abs(picture[outside] - scenes.BACKGROUND).max() < 20
