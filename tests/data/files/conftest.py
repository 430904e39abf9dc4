"""What opens text files with pairs, and files in any other format."""

import pytest

from source_settings import settings
from transformer.data.parallel.sources import open_source


@pytest.fixture
def files(tmp_path):
    """Opens the files source on the named contents, text or bytes, in a folder of their own."""

    def open_files(contents, **changes):
        for name, content in contents.items():
            data = content if isinstance(content, bytes) else content.encode()
            (tmp_path / name).write_bytes(data)
        return open_source(settings(path=str(tmp_path), **changes))

    return open_files


@pytest.fixture
def write(tmp_path):
    """Writes the named contents, text or bytes, and returns settings that read the first."""

    def write_files(contents, **changes):
        for name, content in contents.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        changes = {"train_source": next(iter(contents)), "train_target": "", **changes}
        return settings(path=str(tmp_path), **changes)

    return write_files


@pytest.fixture
def pairs(write):
    def read(contents, **changes):
        return list(open_source(write(contents, **changes))["train"])

    return read
