"""What opens text files with pairs, and files in any other format."""

import pytest

from source_settings import settings
from transformer.data.parallel.sources import open_source


@pytest.fixture
def write(tmp_path):
    """Writes the named contents, text or bytes, and returns settings that read the first."""

    def write_files(contents, **changes):
        for name, content in contents.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        changes = {"train_source": next(iter(contents), ""), "train_target": "", **changes}
        return settings(**{"path": str(tmp_path), **changes})

    return write_files


@pytest.fixture
def files(write):
    """Opens the files source on two files of the named contents."""
    sides = {"train_source": "train.de", "train_target": "train.en"}
    return lambda contents, **changes: open_source(write(contents, **{**sides, **changes}))


@pytest.fixture
def pairs(write):
    def read(contents, **changes):
        return list(open_source(write(contents, **changes))["train"])

    return read
