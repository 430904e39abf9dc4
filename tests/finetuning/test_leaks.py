"""A run is not scored on pairs that the runs before it were trained on, or says how many."""

import logging
import shutil

import numpy as np
import pytest

from configs import base
from runs import TOY
from transformer.data.parallel import training_pairs
from transformer.data.parallel.training_pairs import pair_hash, read_earlier, undirected
from transformer.errors import UserError
from transformer.tasks.translation import TranslationTask

OLD = [(f"cat {i} sees dog {i % 7}", f"Hund {i % 7} sieht Katze {i}") for i in range(60)]
NEW = [(f"cow {i} eats hay {i % 5}", f"Heu {i % 5} frisst Kuh {i}") for i in range(30)]
WARNING = "pairs occur in the training text of earlier runs"


@pytest.fixture
def make(tmp_path):
    """Returns a task of a run on some pairs, which has written its assets to its folder."""

    def make_task(name, pairs, start="", test=(), **changes):
        config = base.get_config()
        config.update_from_flattened_dict(
            {**TOY, "data.source": "files", "data.path": str(tmp_path), "data.max_oov_rate": 1.0,
             "data.cache_dir": str(tmp_path / "cache"), "data.validation_size": 7,
             "data.test_size": 11, "data.train_source": write(tmp_path / f"{name}.tsv", pairs),
             "data.train_target": ""}
        )  # fmt: skip
        if test:
            config.data.test_source = write(tmp_path / f"{name}.test.tsv", test)
        config.train.init_from = start and str(tmp_path / start)
        config.update_from_flattened_dict(changes)
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        task = TranslationTask(config, folder=folder)
        task.save_assets(folder)
        return task

    return make_task


def write(path, pairs):
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    return str(path)


def hashes(pairs):
    return undirected(np.array([pair_hash(*pair) for pair in pairs], np.uint64))


def held_out(task):
    return {pair[:2] for split in ("validation", "test") for pair in task.text.pairs[split]}


def counts(task):
    return {split: own.earlier for split, own in task.text.corpus.held_out.items()}


@pytest.mark.parametrize("holdout", ["hash", "end"])
def test_pairs_that_an_earlier_run_was_trained_on_are_not_held_out(make, tmp_path, holdout):
    keys = {"data.holdout": holdout, "data.seed": 3}
    learnt = set(OLD) - held_out(make("old", OLD))
    grown = NEW + OLD  # whose end was trained on
    after = make("after", grown, "old", **keys)
    assert len(held_out(after)) == 18
    assert not held_out(after) & learnt
    assert counts(after) == {"validation": 0, "test": 0}
    assert not [line for line in after.notes() if WARNING in line]
    # Controls: the same draw without an earlier run, and with one that does not tell its pairs.
    alone = held_out(make("alone", grown, **keys))
    assert alone & learnt
    (tmp_path / "old" / training_pairs.TRAINED_ON_FILE).unlink()
    assert held_out(make("unaware", grown, "old", **keys)) == alone


def test_known_pairs_of_a_given_test_set_are_counted_in_both_directions(make):
    learnt = sorted(set(OLD) - held_out(make("old", OLD)))
    test = [NEW[0], learnt[0], learnt[1][::-1], tuple(f" {side} " for side in learnt[2]), NEW[1]]
    task = make("after", NEW[2:], "old", test)
    assert counts(task) == {"validation": 0, "test": 3}
    assert f"warning: test: 3 of 5 {WARNING}: the scores will be too high" in task.notes()
    splits = task.data_summary()["splits"]
    assert splits["test"]["of them in the training text of earlier runs"] == 3
    assert splits["validation"]["of them in the training text of earlier runs"] == 0


def test_a_chain_of_runs_counts_from_its_first(make):
    learnt = sorted(set(OLD) - held_out(make("a", OLD)))
    make("b", NEW[:20], "a")
    task = make("c", NEW[20:], "b", [learnt[0], NEW[29]], **{"data.validation_size": 2})
    assert counts(task)["test"] == 1


def test_a_run_that_cannot_tell_its_pairs_is_named_in_one_line(make, tmp_path, caplog):
    make("a", OLD)
    (tmp_path / "a" / training_pairs.TRAINED_ON_FILE).unlink()

    def warnings(*arguments):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            task = make(*arguments, **{"data.validation_size": 2, "data.test_size": 2})
        return [r.getMessage() for r in caplog.records if "not checked" in r.getMessage()], task

    [line], task = warnings("b", NEW[:10], "a")
    assert f"the training text of '{tmp_path / 'a'}', which has no trained_on.npz" in line
    assert counts(task) == {"validation": None, "test": None}
    again, task = warnings("c", NEW[10:], "b", [NEW[0], *NEW[2:8]])
    assert again == []
    assert 0 < counts(task)["test"] <= 7  # those of b are known
    assert warnings("d", NEW)[0] == []  # the control


def test_a_run_keeps_its_draw_when_the_earlier_one_is_gone(make, tmp_path):
    keys = {"data.seed": 3}
    make("old", OLD)
    before = held_out(make("after", NEW + OLD, "old", **keys))
    kept = (tmp_path / "after" / training_pairs.TRAINED_ON_FILE).read_bytes()
    shutil.rmtree(tmp_path / "old")
    assert held_out(make("after", NEW + OLD, "old", **keys)) == before
    assert (tmp_path / "after" / training_pairs.TRAINED_ON_FILE).read_bytes() == kept


def test_a_text_that_is_known_is_refused_in_one_line(make):
    make("old", OLD, test=NEW[:1])
    says = r"to hold out .*; not held out are .*: 53 in the training text of earlier runs"
    with pytest.raises(UserError, match=says) as error:
        make("after", OLD, "old")
    assert "\n" not in str(error.value)
    make("after", OLD + NEW[:4], "old")  # the control


# -- the file


def test_the_file_has_eight_bytes_for_each_pair_and_only_grows(tmp_path):
    pairs = undirected(np.random.default_rng(0).integers(0, 2**64, 5000, np.uint64))
    path, earlier = tmp_path / training_pairs.TRAINED_ON_FILE, np.sort(pairs[:700] + 2)
    training_pairs.save_hashes(tmp_path, pairs, earlier)
    assert path.stat().st_size < 8 * 5700 + 1000
    # Of a run that resumes with other text.
    training_pairs.save_hashes(tmp_path, pairs[10:20], earlier)
    new = np.array([6], np.uint64)
    training_pairs.save_hashes(tmp_path, new, earlier)
    known = read_earlier(str(tmp_path), None)
    np.testing.assert_array_equal(known, np.unique(np.concatenate([pairs, earlier, new])))


def test_a_damaged_file_is_refused_in_one_line(tmp_path):
    path = tmp_path / training_pairs.TRAINED_ON_FILE
    training_pairs.save_hashes(tmp_path, np.arange(99, dtype=np.uint64), None)
    read_earlier(str(tmp_path), None)  # the control
    np.savez(path, pairs=np.array(["x"]), earlier=training_pairs.NO_HASHES)
    says = r"trained_on.npz cannot be read \(.*\): restore the original, or delete it"
    with pytest.raises(UserError, match=says) as error:
        read_earlier(str(tmp_path), None)
    assert "\n" not in str(error.value)
