"""Runs that are made of other projects' models."""

import dataclasses
import os
from pathlib import Path

from flax.traverse_util import unflatten_dict

from transformer.bridges import marian_import
from transformer.checks import check
from transformer.config import assign, default_config
from transformer.errors import UserError
from transformer.files import partial_folder
from transformer.runs.run import Run, RunProgress
from transformer.runs.weights import Weights
from transformer.tasks.translation import make_translator, save_tokenizers


def import_marian(folder: str | Path, output: str | Path) -> Path:
    """Converts a Marian model to a run (see `bridges.marian_import`); returns the run's folder.

    Args:
      output: the path of the run's new folder, which exists only once the folder is complete.
    """
    folder, output = Path(folder).expanduser(), Path(output).expanduser()
    if os.path.lexists(output):
        raise UserError(f"{output} is there already: name a new folder")
    settings, tokenizers, params = marian_import.read(folder)
    config = default_config()
    for key, value in {"name": output.name, **settings}.items():
        assign(config, key, value)
    check(config)
    predictor = make_translator(config, *tokenizers)
    with partial_folder(output) as place:
        Run(place, config).claim()
        save_tokenizers(place, *tokenizers)
        progress = dataclasses.asdict(RunProgress(predictor.fingerprint()))
        Weights(place, config).store(unflatten_dict(params, sep="/"), progress)
        marian_import.keep(folder, place)
        place.rename(output)
    return output
