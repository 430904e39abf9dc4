"""How well each filter of cleaning finds its kind of noise, and how much clean text it drops.

    python -m experiments.studies.cleaning --clean=DIR [--pairs=20000] [--noisy=OUT]

DIR has train.en.gz and train.de.gz. The noise is made on purpose, of generated pairs; with --noisy,
of those in DIR, and OUT then has that text, its clean part and the kind of noise of each pair.
"""

import dataclasses
import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.studies.command import Parser, exit_code, whole
from transformer.data.cleaning.rules import FAULTS, CleaningRules
from transformer.data.cleaning.survey import duplicates, survey
from transformer.data.files.pair_files import TwoFiles
from transformer.data.pairs import Pair
from transformer.data.synthetic import grammar
from transformer.errors import UserError
from transformer.storage.files import write_text

OFF = CleaningRules(2000, float("inf"), remove_duplicates=False)
# The keys that switch each filter on.
FILTERS: Mapping[str, Mapping[str, Any]] = {
    "empty": {},
    "length_ratio": {"max_length_ratio": 3.0},
    "mojibake": {"remove_mojibake": True},
    "copied": {"remove_copies": True},
    "numbers": {"match_numbers": True},
    "language": {"languages": ("en", "de")},
    "script": {"min_script_fraction": 0.01},
    "duplicate": {"remove_duplicates": True},
    "near_duplicate": {"remove_near_duplicates": True},
}
# Subjects, verbs and objects, which all go together.
FOREIGN = {
    "French": (
        ("Le chien", "La femme", "Mon voisin", "Notre professeur", "Une vieille dame"),
        ("achète", "regarde", "cherche", "vend", "trouve"),
        ("une voiture dans la ville.", "le livre de sa sœur.", "des fleurs pour sa mère."),
    ),
    "Spanish": (
        ("El perro", "La mujer", "Mi vecino", "Nuestro profesor", "Una señora"),
        ("compra", "mira", "busca", "vende", "encuentra"),
        ("un coche nuevo en la ciudad.", "el libro de su hermana.", "flores para su madre."),
    ),
    "Dutch": (
        ("De hond", "De vrouw", "Mijn buurman", "Onze leraar", "Een oude dame"),
        ("koopt", "bekijkt", "zoekt", "verkoopt", "vindt"),
        ("een nieuwe auto in de stad.", "het boek van haar zus.", "bloemen voor zijn moeder."),
    ),
}
RUSSIAN = (
    ("Собака", "Женщина", "Мой сосед", "Наш учитель", "Старая дама"),
    ("покупает", "видит", "ищет", "продаёт", "находит"),
    ("новую машину в городе.", "книгу своей сестры.", "цветы для мамы."),
)
# Of the pairs, what part has which noise; Russian is rare, as a strange script is.
SHARES = {
    "empty": 0.03,
    "length_ratio": 0.03,
    "mojibake": 0.05,
    "copied": 0.05,
    "numbers": 0.05,
    "language": 0.05,
    "script": 0.005,
    "duplicate": 0.05,
    "near_duplicate": 0.05,
    "misaligned": 0.05,
}


class Noisy(NamedTuple):
    """Pairs, and the kind of noise of each, '' if it is clean."""

    pairs: list[Pair]
    kinds: list[str]


def generated_pairs(count: int, seed: int = 0) -> list[Pair]:
    """Returns pairs of the grammar, some of which have a number."""
    rng = random.Random(seed)
    return [with_number(p, rng) for p in grammar.generate(seed, {"train": count})["train"]]


def noisy_corpus(pairs: Sequence[Pair], count: int, seed: int = 0) -> Noisy:
    """Returns `count` pairs, of which known parts have known noise.

    Args:
      pairs: clean ones, twice as many.
    """
    rng = random.Random(seed)
    clean, spare = pairs[:count], iter(pairs[count:])
    sizes = {kind: round(share * count) for kind, share in SHARES.items()}
    kept = clean[: count - sum(sizes.values())]
    found = [(pair, "") for pair in kept]
    for kind, size in sizes.items():
        for _ in range(size):
            pair = rng.choice(kept) if "duplicate" in kind else next(spare)
            while kind == "mojibake" and pair.target.isascii():
                pair = next(spare)
            if kind == "misaligned":
                pair = Pair(pair.source, next(spare).target)
            else:
                pair = NOISE[kind](pair, rng)
            found.append((pair, kind))
    rng.shuffle(found)
    return Noisy(*map(list, zip(*found, strict=True)))


def with_number(pair: Pair, rng: random.Random) -> Pair:
    """Returns every fifth pair with the same number on both sides, as each language writes it."""
    if rng.random() > 0.2:
        return pair
    number = rng.randrange(10_000_000)
    german = f"{number:,}".replace(",", ".")
    return Pair(f"{pair.source} ({number:,})", f"{pair.target} ({german})")


def _foreign(pair: Pair, rng: random.Random) -> Pair:
    parts = FOREIGN[rng.choice(list(FOREIGN))]
    return Pair(pair.source, " ".join(map(rng.choice, parts)))


def _copied(pair: Pair, rng: random.Random) -> Pair:
    """The source as its own target, in half of them with a word less or in capitals."""
    words = pair.source.split()
    if rng.random() < 0.25 and len(words) > 5:
        del words[rng.randrange(len(words))]
    text = " ".join(words)
    return Pair(pair.source, text.upper() if rng.random() < 0.25 else text)


def _near(pair: Pair, rng: random.Random) -> Pair:
    return Pair(pair.source.upper(), pair.target.rstrip(".?!") + rng.choice(["!!", " ...", "?!"]))


NOISE: Mapping[str, Callable[[Pair, random.Random], Pair]] = {
    "empty": lambda pair, rng: Pair(pair.source, " "),
    "length_ratio": lambda pair, rng: Pair(pair.source, " ".join([pair.target] * 5)),
    "mojibake": lambda pair, rng: Pair(pair.source, pair.target.encode().decode("latin-1")),
    "copied": _copied,
    "numbers": lambda pair, rng: Pair(
        f"{pair.source} ({rng.randrange(1000, 10_000)})",
        f"{pair.target} ({rng.randrange(1000, 10_000)})",
    ),
    "language": _foreign,
    "script": lambda pair, rng: Pair(pair.source, " ".join(map(rng.choice, RUSSIAN))),
    "duplicate": lambda pair, rng: pair,
    "near_duplicate": _near,
}


def dropped_by(pairs: Iterable[Pair], names: Sequence[str]) -> np.ndarray:
    """Returns the fault of each pair, by name, with these filters alone."""
    changes = {key: value for name in names for key, value in FILTERS[name].items()}
    found, rules = survey(pairs, dataclasses.replace(OFF, **changes))
    return np.array(FAULTS)[duplicates(found, rules)]


def scores(corpus: Noisy, names: Iterable[str] = FILTERS) -> dict[str, dict[str, float]]:
    """Returns precision and recall of each of these filters alone.

    Precision counts a pair with any noise as right; recall is of the filter's own kind. Of pairs
    that are equal, or nearly, any may be the first.
    """
    kinds, found = np.array(corpus.kinds), {}
    doubled = {fold(p) for p, kind in zip(*corpus, strict=True) if "duplicate" in kind}
    noise = (kinds != "") | np.array([fold(pair) in doubled for pair in corpus.pairs])
    for name in names:
        faults = dropped_by(corpus.pairs, [name])
        own, hits = kinds == name, faults == name
        # As many are dropped as there are copies, though not always the copies themselves.
        right = min(hits.sum(), own.sum()) if "duplicate" in name else (hits & own).sum()
        found[name] = {
            "pairs": int(own.sum()),
            "recall": float(right / own.sum()),
            "precision": float((hits & noise).sum() / max(1, hits.sum())),
        }
    return found


def fold(pair: Pair) -> str:
    """A pair without case, and its letters alone."""
    return "".join(filter(str.isalpha, f"{pair.source}{pair.target}".casefold()))


def write(corpus: Noisy, folder: Path) -> None:
    """Writes a noisy text, its clean part, and the kind of noise of each pair."""
    folder.mkdir(parents=True, exist_ok=True)
    clean = [pair for pair, kind in zip(*corpus, strict=True) if not kind]
    for name, pairs in (("noisy", corpus.pairs), ("clean", clean)):
        for side, text in (("en", [p.source for p in pairs]), ("de", [p.target for p in pairs])):
            write_text(folder / f"{name}.{side}", "".join(f"{line}\n" for line in text))
    write_text(folder / "noisy.kinds", "".join(f"{kind}\n" for kind in corpus.kinds))


def run(arguments: Sequence[str]) -> None:
    """Prints the tables of docs/results/cleaning.md."""
    parser = Parser(__doc__)
    parser.add_argument("--clean", type=Path, required=True, help="folder of clean text")
    parser.add_argument("--pairs", type=whole(1000, 400_000), default=20_000, help="of noisy text")
    parser.add_argument("--noisy", type=Path, help="folder for noisy text, made of the clean text")
    flags = parser.parse_args(arguments)
    real = list(TwoFiles(flags.clean / "train.en.gz", flags.clean / "train.de.gz"))
    if flags.noisy and len(real) < 2 * flags.pairs:
        raise UserError(
            f"--pairs={flags.pairs} needs twice as many clean pairs, and {flags.clean} has "
            f"{len(real):,}: set --pairs={len(real) // 2} or less"
        )
    pairs = random.Random(0).sample(real, 2 * flags.pairs) if flags.noisy else None
    corpus = noisy_corpus(pairs or generated_pairs(2 * flags.pairs), flags.pairs)
    print(f"| filter | pairs | recall | precision | dropped of {len(real):,} clean pairs |")
    print("|---|---:|---:|---:|---:|")
    for name, row in scores(corpus).items():
        lost = int((dropped_by(real, [name]) == name).sum())
        rates = f"{row['recall']:.3f} | {row['precision']:.3f}"
        print(f"| {name} | {row['pairs']:,} | {rates} | {lost:,} |")
    stray = dropped_by(corpus.pairs, list(FILTERS))[np.array(corpus.kinds) == "misaligned"]
    print(f"| misaligned, by all | {len(stray):,} | {np.mean(stray != ''):.3f} | | |")
    if flags.noisy:
        write(corpus, flags.noisy)


if __name__ == "__main__":
    sys.exit(exit_code(run, sys.argv[1:]))
