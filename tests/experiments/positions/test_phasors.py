"""Phasors are the pairs of sinusoids, in a page that holds their bits."""

import base64
import functools
import json
import re

import numpy as np
from position_examples import COUNT, SIZES, encoding

from experiments.positions import plots
from reference_positions import WRITTEN


@functools.cache
def drawn():
    return plots.phasors_of(SIZES)


def test_the_hands_of_each_order_are_found_in_its_numbers():
    assert {phasor.name: phasor.hands for phasor in drawn() if phasor.name in WRITTEN} == {
        "sinusoidal": [(2 * i, 2 * i + 1) for i in range(8)],
        "split": [(i, i + 8) for i in range(8)],
    }
    assert plots.hands_of(encoding("learned").table(COUNT)) == []


def test_the_page_holds_the_tables_bit_for_bit(tmp_path):
    page = plots.write_phasors(drawn(), tmp_path / "positions.html").read_text("utf-8")
    [data] = re.findall(r'<script type="application/json" id="phasors">(.*)</script>', page)
    for phasor, told in zip(drawn(), json.loads(data)["encodings"], strict=True):
        numbers = np.frombuffer(base64.b64decode(told["table"]["float32"]), "<f4")
        np.testing.assert_array_equal(numbers.reshape(told["table"]["shape"]), phasor.table)
        assert told["hands"] == [list(hand) for hand in phasor.hands]
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
