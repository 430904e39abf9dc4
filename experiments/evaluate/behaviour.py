"""Tests of a translation model on generated lines: `--input=behaviour` and `--input=contrasts`.

Each check of behaviour tests a property that every correct translation of a line must have. Each
contrast tests if a right translation is more probable than one with a single error.
"""

import collections
import functools
import math
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import regex

from transformer.data.cleaning import scripts_of
from transformer.data.corpora import Tagger, parts_of
from transformer.data.held_out import read_pairs
from transformer.data.pairs import Pair
from transformer.data.parallel.modifiers import copied, draw_number, joined, modify
from transformer.data.synthetic.contrasts import contrasts
from transformer.data.words import Words
from transformer.errors import UserError
from transformer.files import write_text
from transformer.inference.hypotheses import loops
from transformer.runs.run import Run
from transformer.tasks.pair_scores import pass_rates
from ..results.run_tables import BEHAVIOUR
from ..results.tasks import TRANSLATIONS, read_lines

LINES_PER_CHECK = 100  # maximum number of lines per check
PLACEHOLDERS = ("{name}", "%s", "%(count)d", "<b>", "[1]", "https://example.org/a1?b=2")
NAMES_TO_COPY = (
    *("María Fernández", "São Paulo", "Łukasz", "Jürgen Müller", "Zoë", "Besançon", "Håkon"),
    *("Nguyễn", "Rzeszów", "Gökçe Yıldız", "Dvořák", "Siobhán", "Nairobi", "Ayşe", "Iñaki"),
)
NEGATION = r"(?i)\b(nicht|nie|kein\w*)\b"  # German only
END = r"(?:[.!?…।۔؟]++(?!\w)|[。！？])"  # the end of a sentence


class Case(NamedTuple):
    """An input line, its reference, and the conditions that a translation must meet to pass.

    A translation must match `pattern`, with a length relative to the reference within `sizes`.
    """

    check: str
    pair: Pair
    pattern: str = "."
    sizes: tuple[float, float] = (0.0, math.inf)


def make_pairs(run: Run, name: str) -> list[Pair]:
    """Returns the pairs to translate for the evaluation BEHAVIOUR or CONTRASTS."""
    if name == BEHAVIOUR:
        return [case.pair for case in make_cases(run)]
    if run.config.data.source != "grammar" or run.config.data.corpora:
        raise UserError(
            f"--input={name}: contrasts exist for config.data.source=grammar only, not for "
            f"{run.config.data.source}: use --input={BEHAVIOUR}"
        )
    return list(dict.fromkeys(Pair(each.source, each.target) for each in contrasts()))


def make_cases(run: Run) -> list[Case]:
    """Returns the test cases for a run, which are generated from the run's test set."""
    config, parts = run.config, parts_of(run.config.data, "test")
    pairs = [pair for part in parts for pair in read_pairs(run.folder, part)]
    spread, tagger = pairs[:: math.ceil(len(pairs) / LINES_PER_CHECK)], Tagger(config.data, None)
    words_of_run, cases = Words(symbols=(*config.tokenizer.symbols, *tagger.pieces)), []
    names = scripts_of("".join(pair.target for pair in pairs))[0] == "LATIN"
    is_grammar = config.data.source == "grammar" and not config.data.corpora
    for number, pair in enumerate(spread):
        random, (tag, text) = Random(number), tagger.split(pair.source)
        words, digits = regex.findall(r"\w+", text) or ["a"], draw_number(random)
        strings = {"number kept": digits, "placeholder kept": random.choice(PLACEHOLDERS)}
        strings |= {"name copied": random.choice(NAMES_TO_COPY)} if names else {}
        for check, string in strings.items():
            put = functools.partial(copied, make=lambda _, string=string: string)
            pattern = rf"(?<!\d){regex.escape(string)}(?!\d)"
            cases.append(Case(check, modify(put, [pair], random, words_of_run), pattern))
        lines = modify(joined, (spread * 2)[number : number + 3], random, words_of_run)
        count = min(len(regex.findall(END, side)) for side in lines[:2])  # "Dr." is counted, too
        thrice = Pair(f"{pair.source} {text.strip()} {text.strip()}", " ".join([pair.target] * 3))
        cases.append(Case("all sentences", lines, rf"(?:{END}.*?){{{count}}}", (0.5, 2)))
        cases.append(Case("sentence thrice", thrice, sizes=(0.5, 2)))
        long = {"one word": random.choice(words), "long word": "".join(words * 2)}
        limit = 2 * max(1.0, len(pair.target) / len(pair.source))  # Chinese words are short strings
        for check, string in (long | {"digits alone": digits}).items():
            rules = (rf"(?<!\d){digits}(?!\d)", (0, 2)) if string == digits else (".", (0, limit))
            cases.append(Case(check, Pair(f"{tag} {string}".strip(), string), *rules))
        if is_grammar and regex.search(NEGATION, pair.target):
            cases.append(Case("negation kept", pair, NEGATION))
    return cases


def check_behaviour(run: Run, place: Path) -> dict[str, Any]:
    """Returns the pass rate of each check; see `pass_rates`.

    Prints some failures, and writes them all to `failures.tsv` (check, source, translation).
    `place` is the evaluation folder, which already contains the translations.
    """
    outcomes, failures = collections.defaultdict(list), []
    tagger, cases = Tagger(run.config.data, None), make_cases(run)
    for case, text in zip(cases, read_lines(place / TRANSLATIONS), strict=True):
        source, target, *_ = case.pair
        fits = case.sizes[0] < (len(text) + 10) / (len(target) + 10) < case.sizes[1]
        for check, passed in {
            case.check: fits and regex.search(case.pattern, text) is not None,
            "not empty": text.strip() != "",
            "no loop": not loops(text, source),
            "not the source": text == target or text != tagger.split(source)[1].strip(),
        }.items():
            outcomes[check].append(passed)
            failures += [] if passed else [f"{check}\t{source}\t{text}\n"]
    write_text(place / "failures.tsv", "".join(failures))
    shown = {line.partition("\t")[0]: line for line in failures}.values()  # one failure per check
    print(f"{len(failures):,} failures in {place / 'failures.tsv'}, such as\n{''.join(shown)}")
    return {BEHAVIOUR: pass_rates(outcomes)}
