"""The study of large text writes pairs once, and measures a first and a second start."""

from experiments.studies.large_text import SIDES, start, write_text


def test_starts_are_measured_on_text_that_is_written_once(tmp_path):
    write_text(tmp_path, 2500)
    texts = [(tmp_path / name).read_text().splitlines() for name in SIDES]
    assert [len(lines) for lines in texts] == [2500, 2500]
    write_text(tmp_path, 9)
    assert [(tmp_path / name).read_text().splitlines() for name in SIDES] == texts
    first, second = start(tmp_path), start(tmp_path)
    assert first.kept == second.kept < 1500  # 1,000 are held out
    assert min(first.seconds, second.seconds) > 0
    assert first.megabytes > 50
