"""A server of a run of each task."""

import pytest
from PIL import Image
from serving import serving

import transformer
from experiments.serve.routes import Served
from tiny_run import shared_folder
from tiny_scenes import train_scenes
from transformer.tasks.pictures import QuestionTask


@pytest.fixture(scope="session")
def runs(loaded):
    return [Served(name, run) for name, run in loaded.items()]


@pytest.fixture(scope="session")
def site(runs):
    with serving(runs) as running:
        yield running


@pytest.fixture(scope="session")
def scenes(tmp_path_factory):
    """A run that answers questions about pictures."""
    return transformer.load(shared_folder(tmp_path_factory, "scenes", train_scenes) / "run")


@pytest.fixture(scope="session")
def photo(scenes):
    """A file of a scene."""
    task = QuestionTask.from_folder(scenes.folder, scenes.config)
    path = scenes.folder.parent / "scene.png"
    Image.fromarray(task.text.pixels["test"][0]).save(path)
    return path
