"""The generated corpora are what they were, with their links."""

import re
import zlib

import pytest

from transformer.data.synthetic import circuits, grammar, toy_reviews
from transformer.errors import UserError

SIZES = {"train": 1000, "validation": 11, "test": 7}
# Each changes only with the words or the probabilities, and then every result must be run again.
DIGESTS = {
    grammar.generate: 123392815,
    grammar.copy_sequences: 339478222,
    grammar.reverse_sequences: 2661384967,
    toy_reviews.generate: 1656772867,
    circuits.repeat_sequences: 1143798453,
    circuits.add_numbers: 2058670540,
}


@pytest.mark.parametrize("generate", DIGESTS)
def test_the_corpora_behind_published_numbers_are_what_they_were(generate):
    splits = generate(5, SIZES)
    assert zlib.crc32(repr(splits).replace(", further=()", "").encode()) == DIGESTS[generate]


def test_drawing_ends_with_the_number_there_is_when_nothing_new_comes(monkeypatch):
    monkeypatch.setattr(grammar, "LETTERS", "a")
    # One sequence for each length from 4 to 12, of which some fall into other splits.
    with pytest.raises(
        UserError, match=r"config\.data\.train_size=30 .* set it to \d or less"
    ) as error:
        grammar.copy_sequences(5, {"train": 30})
    most = int(re.search(r"set it to (\d)", str(error.value))[1])
    assert len(grammar.copy_sequences(5, {"train": most})["train"]) == most
