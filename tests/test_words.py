"""Names, messages and pages use the field's words: those below crept in once, and are gone."""

import ast
import re

import pytest

from places import ROOT

# Only words that have no other meaning here, each with what to write.
WORDS = {
    r"population": "a batch of runs",
    r"prob(e|es|ed|ing)(?![a-z])": "attention snapshots",
    r"(can |to )mend|mended": "fix",
    r"remedy": "fix",
    r"put back": "restore",
    r"made[- ]up": "synthetic",
    r"opinions": "toy reviews",
    r"set_aside|set aside": "hold out",
    r"(padding|unknown)_share": "padding_fraction, oov_rate",
    r"foresee|foresaw|foretell|foretold|foreseen": "predict",
    r"signatures do not compare": "scores with different signatures are not comparable",
    r"bad_steps|bad_run": "nonfinite_steps, consecutive_nonfinite",
    r"longer_size": "length_generalization_size",
    r"max_new(?!_tokens)": "max_new_tokens",
    r"optimizer\.accumulate": "gradient_accumulation_steps",
    r"evaluate\.average(?!_last_n)": "average_last_n",
    r"sweep\.(together|largest)": "sweep.parallel, sweep.max_vmapped_runs",
    r"--point": "--trial",
    r"model\.kind": "model.architecture",
    r"bag_(width|hidden|bigrams)": "bag_of_embeddings_*, bigram_buckets",
    r"clock[_ ]hands?|hands of clocks": "phasors",
    r"hide_end(?!_of)": "hide_eos",
    r"ancestors": "back-pointers",
    r"hopeless": "unpromising",
    r"stood better": "below the median",
    r"going on from": "resuming from",
    r"switch(ed|ing|es) off": "ablate",
    r"(a head is|heads are|head is) worth": "head importance",
    r"operations to train": "training FLOPs per token",
    r"whose fault": "search errors and model errors",
    r"(a|what a) user can (mend|put right)": "user errors",
    r"for want of|\blest": "for lack of, so that ... not",
    r"do(es)? not compare|unlike (tasks|lengths|numbers?)": "are not comparable, different",
    r"anew": "again",
    r"nobody knows": "unknown",
    r"(tokens|sentences|texts|characters|words) a second": "per second",
    r"(text|sentence|pair) a line": "one per line",
    r"(?<!there )is no (file|key)": "is not a file, there is no key",
    r"(MOST|FEWEST|LARGEST|SMALLEST)(_[A-Z]+)*": "MAX_, MIN_",
}
SUFFIXES = (".py", ".md", ".html", ".js", ".css")
PLACES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "launch.py", "transformer", "experiments")
PLACES += ("configs", "docs", "tests")
FILES = sorted(
    path
    for place in PLACES
    for path in ([ROOT / place] if (ROOT / place).is_file() else (ROOT / place).rglob("*"))
    if path.suffix in SUFFIXES and path.name != "test_words.py"
)


def strange(word: str, text: str) -> list[str]:
    """The lines that have a word, as a whole or as a part of a name."""
    flags = 0 if word.isupper() or "MOST" in word else re.IGNORECASE
    pattern = re.compile(rf"(?<![A-Za-z])(?:{word})(?![A-Za-z])", flags)
    return [line.strip() for line in text.splitlines() if pattern.search(line)]


@pytest.mark.parametrize("word", WORDS)
def test_a_word_that_crept_in_is_gone(word):
    found = {str(path.relative_to(ROOT)): strange(word, path.read_text("utf-8")) for path in FILES}
    found = {path: lines for path, lines in found.items() if lines}
    assert not found, f"write {WORDS[word]!r}"


def test_words_are_found_in_names_and_in_prose():
    assert strange(r"remedy", "def the_remedy_is_named():\n# Remedy:") != []
    assert strange(r"anew", "trained anew\nrenew") == ["trained anew"]
    assert strange(r"(MOST|FEWEST)(_[A-Z]+)*", "MOST_FILES = 1\nmost files") == ["MOST_FILES = 1"]


def flags_named(program: str) -> list[str]:
    """The texts of a program, but for docstrings, that name a flag of the command."""
    tree = ast.parse(program)
    prose = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in prose
        if re.search(r"(?<![\w-])--[a-z]", node.value)
    ]


# A whole command to type, and its flags.
COMMANDS = {"transformer/data/files/locate.py": 2, "transformer/trials.py": 1}


def test_messages_of_the_library_name_arguments_and_keys_and_no_flags():
    """Who uses it from Python or from a server has none."""
    found = {
        str(path.relative_to(ROOT)): len(flags_named(path.read_text("utf-8")))
        for path in (ROOT / "transformer").rglob("*.py")
    }
    assert {path: count for path, count in found.items() if count} == COMMANDS


def test_flags_are_found_in_messages_alone():
    assert flags_named('"""Of `--name`."""\nf"{x}: set --name={y} to 3"') == [": set --name="]
    assert flags_named('"a -- b", "x--y", "-n"') == []
