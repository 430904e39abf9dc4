"""Writes figures to files atomically."""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer.storage.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save_figure(figure: "Figure", picture: Path, **options: Any) -> Path:
    """Writes a figure; see `transformer.storage.files.whole_file`.

    Args:
      picture: its suffix (`.png`, `.pdf`, `.svg`) is the format; its folder is made if missing.
      options: of `Figure.savefig`.

    Returns:
      `picture`.

    Raises:
      OSError: the disk refuses; the error names the file.
    """
    data = io.BytesIO()
    figure.savefig(data, format=picture.suffix.removeprefix("."), **options)
    picture.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(picture, data.getvalue())
    return picture
