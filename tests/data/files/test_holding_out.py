"""Text that is held out has its size, keeps the rules of cleaning, and is in no other split."""

import collections
import math
import random
import re

import pytest

from source_settings import refused

TSV = {"train_source": "all.tsv", "train_target": ""}


def corpus(size, repeats=1):
    """A TSV of `size` source sentences, each with `repeats` translations, shuffled."""
    lines = [f"Satz {i}\tsentence {i} {j}" for i in range(size) for j in range(repeats)]
    random.Random(5).shuffle(lines)
    return "\n".join(lines)


def split_texts(splits):
    return {name: list(pairs) for name, pairs in splits.items()}


def test_what_is_held_out_has_its_size_and_shares_no_source_with_other_splits(files):
    text = corpus(211, 3)
    splits = split_texts(files({"all.tsv": text}, **TSV, validation_size=21, test_size=33))
    assert {name: len(pairs) for name, pairs in splits.items()} == {
        "train": 211 * 3 - 54,
        "validation": 21,
        "test": 33,
    }
    everything = sorted(f"{p.source}\t{p.target}" for pairs in splits.values() for p in pairs)
    assert everything == sorted(text.split("\n"))
    owners = collections.defaultdict(set)
    for name, pairs in splits.items():
        for pair in pairs:
            owners[pair.source].add(name)
    assert {len(names) for names in owners.values()} == {1}


def test_what_is_held_out_depends_on_the_seed_and_the_sentences_but_not_their_places(files):
    text = corpus(97)
    backwards = "\n".join(reversed(text.split("\n")))
    sizes = {"validation_size": 11, "test_size": 13}
    first = split_texts(files({"all.tsv": text}, **TSV, **sizes))
    turned = split_texts(files({"all.tsv": backwards}, **TSV, **sizes))
    other = split_texts(files({"all.tsv": text}, **TSV, **sizes, seed=1))
    for name in ("validation", "test"):
        assert sorted(first[name]) == sorted(turned[name])
        assert sorted(first[name]) != sorted(other[name])


@pytest.mark.parametrize("text", [corpus(18), corpus(1, 40)], ids=["few pairs", "one source"])
def test_a_text_too_small_to_hold_out_from_is_refused(files, tmp_path, text):
    with refused(
        tmp_path / "all.tsv",
        f"{len(text.splitlines())} examples",
        "config.data.validation_size=11 and config.data.test_size=7: lower the sizes, or name",
    ):
        files({"all.tsv": text}, **TSV, validation_size=11, test_size=7)


@pytest.mark.parametrize("way", ["hash", "end"])
def test_what_is_held_out_keeps_the_rules_of_cleaning_and_has_its_size(files, way):
    lines = [f"Satz {i}\tsentence {i}" for i in range(60)]
    lines += [f"Satz {i} {'x' * 500}\tsentence {i} {'y' * 500}" for i in range(60, 80)]
    lines += [f"Leer {i}\t" for i in range(110, 120)]
    random.Random(2).shuffle(lines)
    sizes = {"validation_size": 17, "test_size": 19, "holdout": way}
    splits = split_texts(files({"all.tsv": "\n".join(lines)}, **TSV, **sizes, max_characters=100))
    held = splits["validation"] + splits["test"]
    assert len(held) == 36
    assert all(pair.source.startswith("Satz") and len(pair.source) < 100 for pair in held)
    # What breaks them stays in the training text, whose cleaning drops and counts it.
    everything = sorted(f"{p.source}\t{p.target}" for pairs in splits.values() for p in pairs)
    assert everything == sorted(lines)
    # The control: rules that let all pass take others too.
    loose = {"max_characters": 2000, "max_length_ratio": math.inf}
    splits = split_texts(files({"all.tsv": "\n".join(lines)}, **TSV, **sizes, **loose))
    assert not all(len(pair.source) < 100 for pair in splits["test"])


@pytest.mark.parametrize("way", ["hash", "end"])
@pytest.mark.parametrize(
    ("again", "rules"),
    [
        ("Satz {}\tsentence {}", {"remove_duplicates": False}),
        ("Satz: {}\tSentence {}!", {"remove_near_duplicates": True}),
    ],
    ids=["duplicates that stay", "near duplicates"],
)
def test_no_pair_that_is_held_out_is_trained_on_as_well(files, way, again, rules):
    # Letters, too, since pairs without digits may be near-duplicates.
    names = [f"{chr(97 + i // 26)}{chr(97 + i % 26)}{i}" for i in range(40)]
    lines = [text.format(name, name) for text in ("Satz {}\tsentence {}", again) for name in names]
    sizes = {"validation_size": 10, "test_size": 12}
    splits = files({"all.tsv": "\n".join(lines)}, **TSV, **sizes, **rules, holdout=way)
    numbers = {
        name: [re.sub(r"\D", "", pair.source) for pair in pairs]
        for name, pairs in {**splits, "train": splits["train"].cleaned}.items()
    }
    held = numbers["validation"] + numbers["test"]
    assert len(held) == 22
    assert not {*held} & {*numbers["train"]}
    copies = 1 if "remove_near_duplicates" in rules else 2
    assert len(numbers["train"]) == copies * (40 - len({*held}))
