"""Files of word links are read as they are meant, and what is wrong in one is named."""

import pytest

from source_settings import refused
from transformer.data.parallel.texts import read_links

SIZES = [(5, 3), (1, 1), (2, 7)]


@pytest.fixture
def read(tmp_path):
    def run(text: str, sizes=SIZES):
        path = tmp_path / "gold.txt"
        path.write_text(text)
        return [*read_links(path, sizes, f"--links {path}")]

    return run


def test_sure_and_possible_links_are_told_apart(read):
    first, blank, last = read("0-0  4-2 3p1 1?2\n\n1-6 0-0\n")
    assert first == ([(0, 0), (4, 2)], [(3, 1), (1, 2)])
    assert (blank, last) == (([], []), ([(1, 6), (0, 0)], []))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("1-1 5-0", ("line 2", "5-0", "5 source words and 3 target words", "from zero")),
        ("0-0 1–1", ("line 2", "'1–1' is not a link", "0-0", "0p0")),
        ("²-0", ("line 2", "'²-0' is not a link")),
        ("x" * 500, ("line 2", f"'{'x' * 40}' is not a link")),
    ],
)
def test_a_wrong_link_is_named_with_its_file_and_line(read, tmp_path, line, says):
    with refused(f"--links {tmp_path / 'gold.txt'}", *says):
        read(f"0-0\n{line}\n", [(5, 3)] * 2)
    assert read("0-0\n4-2\n", [(5, 3)] * 2)[1][0] == [(4, 2)]  # the control: the last of both
