"""Banned words: names, messages and pages must use the standard terms instead."""

import re
from collections.abc import Iterator
from pathlib import Path

# Words that have no other meaning in this project: pattern -> (replacement, matching examples).
WORDS = {
    r"population": ("a batch of runs", "the population of runs"),
    r"prob(e|es|ed|ing)(?![a-z])": ("attention snapshots", "a probe; probes; probed; probing"),
    r"(can |to )mend|mended": ("fix", "you can mend it; how to mend it; it was mended"),
    r"remedy": ("fix", "the remedy"),
    r"put back": ("restore", "it is put back"),
    r"made[- ]up": ("synthetic", "made up text; made-up text"),
    r"opinions": ("toy reviews", "opinions of films"),
    r"set_aside|set aside": ("hold out", "set_aside(pairs); pairs set aside"),
    r"(padding|unknown)_share": ("padding_fraction, oov_rate", "padding_share; unknown_share"),
    r"foresee|foresaw|foretell|foretold|foreseen": (
        "predict",
        "foresee; foresaw; foretell; foretold; foreseen",
    ),
    r"signatures do not compare": (
        "scores with different signatures are not comparable",
        "signatures do not compare",
    ),
    r"bad_steps|bad_run": ("nonfinite_steps, consecutive_nonfinite", "bad_steps; bad_run"),
    r"longer_size": ("length_generalization_size", "longer_size"),
    r"max_new(?!_tokens)": ("max_new_tokens", "max_new = 3"),
    r"optimizer\.accumulate": ("gradient_accumulation_steps", "optimizer.accumulate"),
    r"evaluate\.average(?!_last_n)": ("average_last_n", "evaluate.average"),
    r"sweep\.(together|largest)": (
        "sweep.parallel, sweep.max_vmapped_runs",
        "sweep.together; sweep.largest",
    ),
    r"--point": ("--trial", "--point=3"),
    r"model\.kind": ("model.architecture", "model.kind"),
    r"bag_(width|hidden|bigrams)": (
        "bag_of_embeddings_*, bigram_buckets",
        "bag_width; bag_hidden; bag_bigrams",
    ),
    r"clock[_ ]hands?|hands of clocks": ("phasors", "clock hand; clock_hands; the hands of clocks"),
    r"hide_end(?!_of)": ("hide_eos", "hide_end"),
    r"ancestors": ("back-pointers", "the ancestors of a beam"),
    r"hopeless": ("unpromising", "hopeless trials"),
    r"stood better": ("below the median", "others stood better"),
    r"going on from": ("resuming from", "going on from step 3"),
    r"switch(ed|ing|es) off": ("ablate", "switched off; switching off; switches off"),
    r"(a head is|heads are|head is) worth": (
        "head importance",
        "what a head is worth; heads are worth; each head is worth",
    ),
    r"operations to train": ("training FLOPs per token", "operations to train"),
    r"whose fault": ("search errors and model errors", "whose fault it is"),
    r"(a|what a) user can (mend|put right)": (
        "user errors",
        "what a user can mend; a user can put right",
    ),
    r"for want of|\blest": ("for lack of, so that ... not", "for want of memory; lest it fail"),
    r"do(es)? not compare|unlike (tasks|lengths|numbers?)": (
        "are not comparable, different",
        "do not compare; it does not compare; unlike tasks; unlike lengths; unlike number",
    ),
    r"course of the training": ("training curves", "over the course of the training"),
    r"anew": ("again", "trained anew"),
    r"nobody knows": ("unknown", "nobody knows"),
    r"(tokens|sentences|texts|characters|words) a second": (
        "per second",
        "tokens a second; sentences a second; texts a second; characters a second; words a second",
    ),
    r"(text|sentence|pair) a line": (
        "one per line",
        "a text a line; one sentence a line; a pair a line",
    ),
    r"(?<!there )(is|are) no (key|pipe|text|class|sink|piece)(s|es)?|is no (file|folder)": (
        "is not a file, there is no key",
        "it is no key; it is no file; there is no folder; they are no classes",
    ),
    r"beside": ("next to, besides", "beside the output; MAX_BESIDE"),
    r"alike": ("the same, equally", "read alike"),
    r"so many": ("this many, a number of", "so many times"),
    r"(MOST|FEWEST|LARGEST|SMALLEST)(_[A-Z]+)*": (
        "MAX_, MIN_",
        "MOST_FILES = 1; FEWEST = 2; LARGEST_MODEL = 3; SMALLEST = 4",
    ),
}
ANY = re.compile("|".join(WORDS), re.IGNORECASE)
SUFFIXES = (".py", ".md", ".html", ".js", ".css")
PLACES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "launch.py", "transformer", "experiments")
PLACES += ("configs", "docs", "studies", "tests", "tools")


def strange(word: str, text: str) -> list[str]:
    """Returns the lines that contain a word, alone or as a part of a name."""
    flags = 0 if word.isupper() or "MOST" in word else re.IGNORECASE
    pattern = re.compile(rf"(?<![A-Za-z])(?:{word})(?![A-Za-z])", flags)
    return [line.strip() for line in text.splitlines() if pattern.search(line)]


def strange_words(root: Path) -> Iterator[str]:
    """Yields a message with the replacement for each banned word in the project's files."""
    for place in PLACES:
        for path in [root / place] if (root / place).is_file() else (root / place).rglob("*"):
            if path.suffix in SUFFIXES and path != Path(__file__):
                text = path.read_text("utf-8")
                for word, (replacement, _) in WORDS.items() if ANY.search(text) else ():
                    for line in strange(word, text):
                        yield f"{path.relative_to(root)}: {line!r}: write {replacement!r}"
