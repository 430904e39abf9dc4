"""Translation memories: the text of their segments alone, no entities, and errors by line."""

import psutil
import pytest
from format_examples import END, HEAD, NAMES, PAIRS, memory, unit

from source_settings import refused
from transformer.data.pairs import Pair
from transformer.data.parallel.sources import open_source
from transformer.data.parallel.texts import parallel_text


def test_the_code_inside_a_segment_is_no_text(pairs):
    inner = 'A <bpt i="1">&lt;b&gt;<sub>x</sub></bpt>house<ept i="1"/> <hi>so</hi><ph>y</ph>.'
    content = HEAD + unit(("Ein Haus", "@")).replace("@", inner) + END
    assert pairs({"a.tmx": content}, **NAMES) == [Pair("Ein Haus", "A house so.")]


def test_the_exact_language_goes_before_one_of_a_region(pairs):
    content = memory([("a", "b", "c", "d")], ("en-US", "en", "de-AT", "de-DE"))
    assert pairs({"a.tmx": content}, **NAMES) == [Pair("c", "b")]


SECRET = "secret of another file"


@pytest.mark.parametrize(
    "declaration",
    [
        '[<!ENTITY x SYSTEM "{path}">]>',
        '[<!ENTITY a "ha"><!ENTITY x "&a;&a;&a;&a;">]>',
    ],
)
def test_entities_are_never_expanded(write, tmp_path, declaration):
    (tmp_path / "secret.txt").write_text(f'<!ENTITY x "{SECRET}">')
    declared = declaration.format(path=(tmp_path / "secret.txt").as_uri())
    content = memory([("&x; a", "b"), ("c", "d")]).replace("&amp;", "&")
    content = content.replace('SYSTEM "tmx14.dtd">', declared)
    with refused("line 4: the entity &x; is not expanded", "skip_broken") as error:
        open_source(write({"a.tmx": content}, **NAMES))
    assert SECRET not in str(error.value)
    train = open_source(write({"a.tmx": content}, **NAMES, skip_broken=True))["train"]
    assert list(train) == [Pair("c", "d")]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (HEAD + unit(PAIRS[0]), "Premature end of data"),
        (HEAD + unit(PAIRS[0]) + "<tu></tuv>", "Opening and ending tag"),
    ],
)
def test_broken_xml_is_named_by_its_line(write, content, says):
    with refused("a.tmx: broken XML", says, "line 5", "fix the file"):
        open_source(write({"a.tmx": content}, **NAMES, skip_broken=True))


@pytest.mark.full
def test_units_are_streamed(write, tmp_path):
    rows = parallel_text(write({"a.tmx": memory(PAIRS)}, **NAMES), "train")
    assert sum(1 for _ in rows) == 4  # what is imported stays
    with (tmp_path / "a.tmx").open("w") as file:
        file.write(HEAD)
        for number in range(4000):
            file.write(unit((f"{number} {'x' * 5000}", "y" * 5000)))
        file.write(END)
    process = psutil.Process()  # lxml does not use the memory that tracemalloc sees
    before = process.memory_info().rss
    growth = max(process.memory_info().rss - before for _ in rows)
    assert growth < (tmp_path / "a.tmx").stat().st_size / 5
