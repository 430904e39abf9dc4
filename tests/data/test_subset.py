"""A subset of the training pairs is chosen by their text, within every larger one."""

import pytest

from configs import own_text
from log_lines import heard
from transformer.checks import check
from transformer.data.parallel.sources import count_train, open_source

WORDS = ("cat", "dog", "hen", "cow", "pig", "owl", "fox")
PAIRS = [(f"a {a} sees {n} {b}s", f"ein {b} {n} {a}") for a in WORDS for b in WORDS for n in (5, 7)]


@pytest.fixture
def pairs_of(tmp_path):
    """The pairs of a split, with a subset of this size."""
    for name, side in (("train.en", 0), ("train.de", 1)):
        lines = [(pair[side], ("", "faulty")[side]) for pair in PAIRS]
        (tmp_path / name).write_text("".join(f"{line}\n" for pair in lines for line in pair))

    def read(subset: int, split="train", **changes):
        settings = {"data.path": str(tmp_path), "data.validation_size": 11, "data.test_size": 13}
        config = own_text.get_config()
        config.update_from_flattened_dict(
            {**settings, "data.cache_dir": str(tmp_path), "data.train_subset": subset, **changes}
        )
        check(config)
        most = 2 * len(PAIRS) - 24
        assert count_train(config.data) == min(subset or most, most)
        pairs = [pair[:2] for pair in open_source(config.data)[split]]
        assert (("", "faulty") in pairs) == (split == "train" and not subset)
        return [pair for pair in pairs if all(pair)]

    return read


@pytest.mark.parametrize("holdout", ["hash", "end"])
def test_a_subset_has_as_many_pairs_as_asked_and_all_of_a_smaller_one(pairs_of, holdout):
    small, large, everything = (pairs_of(size, **{"data.holdout": holdout}) for size in (17, 31, 0))
    assert [len(pairs) for pairs in (small, large, everything)] == [17, 31, len(PAIRS) - 24]
    assert set(small) < set(large) < set(everything)
    for subset in (small, large):  # in the order of the file, from all over it
        assert [pair for pair in everything if pair in subset] == subset
        assert everything[: len(subset)] != subset
    assert set(pairs_of(17, **{"data.holdout": holdout, "data.seed": 1})) != set(small)


def test_what_is_held_out_is_the_same_with_any_subset(pairs_of):
    for split in ("validation", "test"):
        assert pairs_of(17, split) == pairs_of(0, split)
        assert not set(pairs_of(17)) & set(pairs_of(0, split))


def test_a_subset_of_more_than_there_is_has_all_and_says_how_many(pairs_of):
    with heard() as lines:
        assert len(pairs_of(17)) == 17
    assert "data.train_subset: 17 of 172 training pairs" in lines
    assert pairs_of(1000) == pairs_of(0)
