"""Lines of many languages and scripts are read and written by their case, in a page, too.

`case_lines.tsv` has a line, a translation as the model writes it, and, if orthography decides,
the line as the model reads it and the translation as a user reads it. A line without a target
language has the words of its source language, as training text writes them; others have none.
"""

import csv

import pytest

from offline import run_script
from places import ROOT
from transformer.bridges.browser import make_words
from transformer.data.placeholders import NAMES, read_line, write_text
from transformer.data.words import KINDS, Words, case_of, read_case, write_case

SYMBOLS = ("<2de>", "{NAME}", "<URL>", *NAMES)
with (ROOT / "tests/data/words/case_lines.tsv").open(encoding="utf-8", newline="") as file:
    TABLE = [*csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
FORMS = {row["source"]: row["line"].split(" ") for row in TABLE if not row["target"]}
LINES = [row for row in TABLE if row["target"]]
PAGE = """
return lines.map(([spec, line, text]) => {
  const words = new Words(spec, symbols);
  const length = (part) => Array.from(part).length;
  const tokens = words.tokens(line).map(({ text, start, isWord, isFirst }) =>
    [text, length(line.slice(0, start)), isWord, isFirst]);
  const [caseOf, read] = [words.caseOf(line), words.readCase(line)];
  const [names, strings] = words.readLine(read);
  const written = words.writeCase(text, line);
  const whole = words.writeText(written, strings);
  const copied = words.isCopied(line);
  return [tokens, caseOf, read, names, [...strings], written, whole, copied, words.written(line)];
});
"""


def words_of(row: dict[str, str]) -> Words:
    """The words of a source, if known, and all kinds of copies; German swaps points and commas."""
    source, target = row["source"], row["target"]
    forms = tuple(FORMS.get(source, ()))
    copied = tuple(kind for kind in KINDS if forms and (kind, target) != ("number", "de"))
    return Words(forms, copied, (source, target), SYMBOLS)


def all_of(row: dict[str, str]) -> list:
    """What the functions return for a line and its translation, as in the page."""
    words, line = words_of(row), row["line"]
    tokens = [[t.text, t.start, t.is_word, t.is_first] for t in words.tokens(line)]
    read = read_case(line, words)
    names, strings = read_line(read, words)
    written = write_case(row["text"], line, words)
    return [
        *(tokens, case_of(line, words), read, names, [*map(list, strings.items())]),
        *(written, [*write_text(written, strings)]),
        *(words.is_copied(line), words.written(line)),
    ]


@pytest.mark.full
def test_a_line_is_read_as_training_text_writes_its_words_and_written_in_its_case():
    for row in LINES:
        _, _, _, read, *_, (whole, _), is_copied, copy = all_of(row)
        assert row["read"] in ("", read), row["line"]
        if row["written"]:
            assert (copy if is_copied else whole) == row["written"], row["line"]
            assert is_copied == (not row["text"])


@pytest.mark.full
def test_a_page_reads_and_writes_every_line_as_python_does(tmp_path):
    lines = [[make_words(words_of(row)), row["line"], row["text"]] for row in LINES]
    answers = run_script(tmp_path, PAGE, lines=lines, symbols=SYMBOLS)
    expected = [all_of(row) for row in LINES]
    assert len({row["source"] for row in LINES}) >= 25
    different = [pair for pair in zip(answers, expected, strict=True) if pair[0] != pair[1]]
    assert different == []
