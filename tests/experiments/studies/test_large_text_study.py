"""The study of large text writes pairs once, and measures a first and a second start."""

import psutil
import pytest

from experiments.studies.large_text import SIDES, start, write_text


def written(folder):
    """The time at which each file below a folder was written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_starts_are_measured_on_text_that_is_written_once(tmp_path):
    write_text(tmp_path, 2500)
    texts = [(tmp_path / name).read_text().splitlines() for name in SIDES]
    assert [len(lines) for lines in texts] == [2500, 2500]
    write_text(tmp_path, 9)
    assert [(tmp_path / name).read_text().splitlines() for name in SIDES] == texts
    before = written(tmp_path)
    own = psutil.Process().memory_full_info().pss / 2**20
    first, made = start(tmp_path), written(tmp_path)
    assert {path.suffix for path in made.keys() - before.keys()} >= {".model", ".npy"}
    second = start(tmp_path)
    assert written(tmp_path) == made  # it reads what the first one has made
    different = len(set(zip(*texts, strict=True)))
    assert 0.99 * (different - 1000) < first.kept == second.kept < 1500  # 1,000 are held out
    assert min(first.seconds, second.seconds) > 0
    # This process is one of those that are measured; the others are at most one for each core.
    assert 0.8 * own < first.megabytes < own + 8000
