"""Large text is cleaned once, and the next start finds the same result."""

import contextlib
import os
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from source_settings import settings
from transformer.data.files import text
from transformer.data.files.table import TableFile
from transformer.data.pairs import Pair
from transformer.data.parallel import sources
from transformer.data.token_store import StoreWriter

pytestmark = pytest.mark.full

PAIRS = [Pair(f"Satz {i % 83} {'x' * (i % 50)}", f"sentence {i % 83}") for i in range(400)]


@pytest.fixture
def large(tmp_path, monkeypatch):
    """Opens files as if they were large, and counts the lines read."""
    monkeypatch.setattr(sources, "WORTH_KEEPING", 0)
    for name, side in (("a.de", 0), ("a.en", 1)):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in PAIRS))
    (tmp_path / "dev.de").write_text("Satz 1 x\n\n")
    (tmp_path / "dev.en").write_text("sentence 1\nb\n")
    lines, decode = [], text.decode_line
    count = lambda line, path, number: lines.append(path) or decode(line, path, number)  # noqa: E731
    monkeypatch.setattr(text, "decode_line", count)

    def read(**changes):
        del lines[:]
        names = {"train_source": "a.de", "train_target": "a.en", "test_size": 11}
        own = {"validation_source": "dev.de", "validation_target": "dev.en"}
        places = {"path": str(tmp_path), "cache_dir": str(tmp_path / "cache")}
        splits = sources.open_files(settings(**{**names, **own, **places, **changes}))
        train = splits["train"]
        read = sum(Path(path).name.startswith("a.") for path in lines)
        return splits["test"], train.kept, train.report, train.fingerprints, train.held_out, read

    return read


def test_a_second_start_reads_no_training_text_and_finds_the_same(large):
    *first, lines = large()
    assert lines >= len(PAIRS)
    assert first[-1]["validation"].repeated == 1
    *second, lines = large()
    assert second == first
    assert lines == 0
    assert large(batch_tokens=7)[-1] == 0


ROWS = [*PAIRS[:70], Pair("no", None), *PAIRS[70:]]  # one is broken


def test_the_files_of_a_data_set_are_read_again_only_if_one_changed(
    large, tmp_path, monkeypatch, caplog
):
    read, records = [], TableFile.records
    monkeypatch.setattr(TableFile, "records", lambda self: read.append(self) or records(self))
    rows = pyarrow.table({"0": [pair.source for pair in ROWS], "1": [p.target for p in ROWS]})
    (tmp_path / "set").mkdir()
    file = tmp_path / "set" / "0000.parquet"
    parquet.write_table(rows, file)
    keys = {"train_source": "set", "train_target": "", "skip_broken": True}
    *first, _ = large(**keys)
    assert read
    assert len(first[0]) == 11
    assert len(first[1]) == len(PAIRS) - 11
    del read[:]
    assert large(**keys)[:-1] == tuple(first)
    assert not read
    skipped = [line for line in caplog.messages if "skipped" in line]
    assert len(skipped) == 2  # also of what was not read again
    assert set(skipped) == {f"{tmp_path / 'set'}: skipped 1 broken rows"}
    os.utime(file, ns=(1, 1))
    assert large(**keys)[:-1] == tuple(first)
    assert read


def test_what_changes_the_result_is_read_again(large, tmp_path):
    *first, _ = large()
    for changes in ({"seed": 1}, {"max_characters": 30}, {"test_size": 12}, {"holdout": "end"}):
        *other, lines = large(**changes)
        assert other != first
        assert lines >= len(PAIRS)
    path = tmp_path / "a.en"
    path.write_text(path.read_text().replace("sentence 82", "sentence 92"))
    *other, lines = large()
    assert lines >= len(PAIRS)
    assert other[3] != first[3]


def test_small_text_leaves_nothing_in_the_cache(large, monkeypatch, tmp_path):
    monkeypatch.setattr(sources, "WORTH_KEEPING", 10**9)
    large()
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("dtype", [np.int32, np.uint8])
@pytest.mark.parametrize("parts", [[], [3], [0, 5, 7001]])
def test_sequences_written_in_parts_are_the_whole_in_memory_and_on_disk(tmp_path, parts, dtype):
    whole = (np.arange(sum(parts)) % 251).astype(dtype)
    for folder in (tmp_path, None):
        with contextlib.ExitStack() as opened:
            writer = StoreWriter(folder, opened, dtype)
            for part in np.split(whole, np.cumsum(parts)[:-1]) if parts else []:
                writer.add([part.tobytes() if dtype is np.uint8 else part.tolist()])
            arrays = writer.arrays("x")
        assert arrays["x"].dtype == dtype
        np.testing.assert_array_equal(arrays["x"], whole)
        np.testing.assert_array_equal(arrays["x_offsets"], np.cumsum([0, *parts]))
    assert not list(tmp_path.iterdir())
