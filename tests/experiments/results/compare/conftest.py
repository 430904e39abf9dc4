"""Runs that are compared."""

import shutil

import pytest

from sweeps import translator


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Folders of translators by name: two seeds each of three settings; only to be read."""
    root = tmp_path_factory.mktemp("runs")
    folders = {}
    for i, (name, errors) in enumerate({"base": 0.3, "same": 0.3, "good": 0.1}.items()):
        for seed in (0, 1):
            folder = translator(root / "made", 2 * i + seed, errors)
            folders[f"{name}_s{seed}"] = shutil.move(folder, root / f"{name}_s{seed}")
    return folders


@pytest.fixture
def copies(runs, tmp_path):
    """The two runs `base_s0` and `good_s0` to change."""
    return [shutil.copytree(runs[f"{name}_s0"], tmp_path / name) for name in ("base", "good")]
