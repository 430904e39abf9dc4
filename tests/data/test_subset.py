"""A subset of the training pairs is chosen by their text, within every larger one."""

import pytest

from configs import own_text
from transformer.checks import check
from transformer.data.parallel.sources import count_train, open_source

WORDS = ("cat", "dog", "hen", "cow", "pig", "owl", "fox")
PAIRS = [(f"a {a} sees {n} {b}s", f"ein {b} {n} {a}") for a in WORDS for b in WORDS for n in (5, 7)]


@pytest.mark.parametrize("holdout", ["hash", "end"])
def test_a_subset_has_as_many_clean_pairs_as_asked_and_all_of_a_smaller_one(tmp_path, holdout):
    for name, side in (("train.en", 0), ("train.de", 1)):
        lines = [(pair[side], ("", "faulty")[side]) for pair in PAIRS]
        (tmp_path / name).write_text("".join(f"{line}\n" for pair in lines for line in pair))

    def read(subset, split="train", **changes):
        settings = {"data.path": str(tmp_path), "data.validation_size": 11, "data.test_size": 13}
        settings |= {"data.cache_dir": str(tmp_path), "data.train_subset": subset}
        config = own_text.get_config()
        config.update_from_flattened_dict({**settings, "data.holdout": holdout, **changes})
        check(config)
        most = 2 * len(PAIRS) - 24
        assert count_train(config.data) == min(subset or most, most)
        pairs = [pair[:2] for pair in open_source(config.data)[split]]
        assert (("", "faulty") in pairs) == (split == "train" and not subset)
        return [pair for pair in pairs if all(pair)]

    small, large, everything = (read(size) for size in (17, 31, 0))
    assert [len(pairs) for pairs in (small, large, everything)] == [17, 31, len(PAIRS) - 24]
    assert set(small) < set(large) < set(everything)
    # In the order of the file, from all over it.
    assert [pair for pair in everything if pair in small] == small
    assert everything[:17] != small
    assert set(read(17, **{"data.seed": 1})) != set(small)
    assert read(1000) == everything
    assert read(17, "test") == read(0, "test")
