"""What opens text files with pairs."""

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
