"""The numbers of a config that the compiled step takes as arguments in all tasks."""

import dataclasses
import logging
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from transformer.errors import UserError
from transformer.model.build import REGISTRY
from transformer.model.classifier import BAG, BagOfEmbeddings
from transformer.model.config import ModelConfig
from transformer.model.layers import DropoutRates

logger = logging.getLogger(__name__)


def hparams_of(config: ConfigDict) -> dict[str, float]:
    """Returns label smoothing, and the weight of R-Drop and the dropout rates that are not zero.

    A zero is left out, so that the compiled step has no operations for it.
    """
    rates = {f"dropout_{name}": config.model[f"dropout_{name}"] for name in DropoutRates._fields}
    used = {name: rate for name, rate in rates.items() if rate}
    if r_drop := config.train.r_drop:
        name = config.model.architecture
        network = BagOfEmbeddings if name == BAG else REGISTRY[name]
        if not any(config.model[f"dropout_{rate}"] for rate in network.row_dropouts):
            raise UserError(
                f"config.train.r_drop={r_drop} compares two passes with different dropout, and "
                "there is none: set config.model.dropout_embedding, or config.train.r_drop=0"
            )
        used["r_drop"] = r_drop
    return {"label_smoothing": config.train.label_smoothing, **used}


def rates_of(hparams: dict[str, Any]) -> DropoutRates:
    """Returns the dropout rates among the arguments of a step."""
    return DropoutRates(
        **{name: hparams.get(f"dropout_{name}", 0.0) for name in DropoutRates._fields}
    )


def text_of(config: ConfigDict) -> dict[str, Any]:
    """Returns the settings of a config that determine its text."""
    tokenizer = {**config.tokenizer.to_dict(), "initial_folder": initial_folder(config)}
    start = config.train.init_from  # whose training pairs are not held out
    return {"data": config.data.to_dict(), "tokenizer": tokenizer, "init_from": start}


def initial_folder(config: ConfigDict) -> Path | None:
    """Returns the folder of the run whose tokenizers this one keeps or grows, if there is one."""
    folder = config.train.init_from
    return Path(folder).expanduser() if folder and config.tokenizer.initial != "new" else None


def warn_of_earlier_text(config: ConfigDict) -> None:
    """Warns that the run from which this one starts may have been trained on the held-out text."""
    if config.train.init_from:
        logger.warning(
            "warning: not checked whether text for validation and test occurs in the training text "
            "of config.train.init_from=%a",
            config.train.init_from,
        )


def model_fields(config: ConfigDict) -> dict[str, Any]:
    """Returns the fields of a `ModelConfig` from a config, for an encoder or a decoder."""
    if config.model.architecture == BAG:
        raise UserError(
            f"config.model.architecture={BAG} is for config.task=classification: choose one of "
            f"{', '.join(REGISTRY)}"
        )
    names = {field.name for field in dataclasses.fields(ModelConfig)}
    return {name: value for name, value in config.model.items() if name in names}
