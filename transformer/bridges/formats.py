"""The registry of export formats."""

import hashlib
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
from ml_collections import ConfigDict

from transformer import files
from transformer.bridges import ctranslate2, marian, marian_import, onnx, stablehlo
from transformer.bridges.reader import TEXTS
from transformer.data.corpora import corpora_of
from transformer.errors import UserError, markdown_text
from transformer.inference.translator import Translator
from transformer.metrics.registry import TABLE, metrics_of
from transformer.model.config import check_choice
from transformer.variants import Registry

CHOICE, WEIGHTS = "weights.json", "weights.safetensors"  # final weights, without optimizer state
# The other files that are needed for inference, as glob patterns.
BUNDLE = (
    *("config.json", "variants.json", "run.json", "results.json", "labels.json"),
    *("class_weights.json", "confidence.json", "tokenizer*.model", "tokenizer*.json", CHOICE),
)

DEFAULT = "bundle"
BUNDLES = (DEFAULT, "bundle_float16")  # formats that are a run's folder, for any task
BAR = "\\|"  # an escaped "|" for cells of Markdown tables


class Export(NamedTuple):
    """A run to export.

    Attributes:
      run: the run's folder.
      steps: the steps of the checkpoints whose average is exported.
      params: the exported weights.
      scores: the test set scores keyed by metric, or an empty dict if the run was not scored.
    """

    run: Path
    steps: Sequence[int]
    config: ConfigDict
    predictor: Any
    params: Any
    scores: Mapping[str, Any]
    metrics: str  # the task's key in `metrics.registry.REGISTRY`


class Format(NamedTuple):
    """An export format.

    Attributes:
      write: a function (export, folder) that writes the model to the folder.
      usage: Markdown text for the model card that explains how to use the model.
    """

    write: Callable[[Export, Path], Any]
    usage: str


def _write_bundle(export: Export, folder: Path) -> dict[str, Any]:
    """Copies the files needed for inference unchanged, after a check that they are readable.

    Returns the content of `weights.json`.
    """
    run, again = export.run, "evaluate it, then export it"
    try:
        choice = files.read_sealed(run / CHOICE, {"steps": [int], "stored": {"digest": str}})
    except files.DamageError as error:
        raise UserError(f"{run}: {error}: {again}") from None
    # After an interrupted or resumed training, the final weights have not been chosen yet.
    if choice["steps"] != [*export.steps]:
        raise UserError(f"{run} has not chosen its weights yet: {again}")
    files.copy_file(run / WEIGHTS, folder / WEIGHTS, again, choice["stored"]["digest"])
    for path in itertools.chain(*map(run.glob, BUNDLE)):
        if path.suffix == ".json":
            files.read_json(path, (dict, list), "restore the original")
        files.copy_file(path, folder / path.name, "restore the original")
    return choice


def _write_float16_bundle(export: Export, folder: Path) -> None:
    """Writes a bundle with float16 weights, which are read as float32."""
    choice = _write_bundle(export, folder)
    arrays = safetensors.numpy.load_file(folder / WEIGHTS)
    data = safetensors.numpy.save({name: x.astype(np.float16) for name, x in arrays.items()})
    files.write_bytes(folder / WEIGHTS, data)
    choice["stored"] |= {"digest": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    files.write_json(folder / CHOICE, choice)


def _of_translator(module: Any, *settings: Any) -> Format:
    """Returns the format of a module whose `write` takes a translator and its weights."""

    def write(export: Export, folder: Path) -> None:
        module.write(export.predictor, export.params, folder, *settings)

    return Format(write, module.USAGE)


def _write_marian(export: Export, folder: Path) -> None:
    if (origin := export.run / marian_import.ORIGIN).is_dir():
        config = export.predictor.model.config
        marian_import.write_back(config, export.params, origin, folder)
    else:
        marian.write(export.predictor, export.params, folder)


FORMATS: dict[str, Format] = Registry(
    bundle=Format(_write_bundle, TEXTS["usage"]["bundle"]),
    bundle_float16=Format(_write_float16_bundle, TEXTS["usage"]["bundle"]),
    marian=Format(_write_marian, marian.USAGE),
    ctranslate2=_of_translator(ctranslate2, ""),
    ctranslate2_int8=_of_translator(ctranslate2, "int8"),
    stablehlo=_of_translator(stablehlo),
    onnx=_of_translator(onnx),
    html=Format(
        lambda *place: files.import_sibling("experiments.serve.serve").write_page(*place),
        TEXTS["usage"]["html"],
    ),
)


def write_export(export: Export, name: str, output: Path) -> Path:
    """Exports a run with a model card to the new folder `output`, and returns the folder.

    A temporary folder is renamed to `output` only when it is complete.
    Raises UserError if `output` exists, or if the format is unknown or does not support the model.
    """
    check_choice("format", name, FORMATS)
    format = FORMATS[name]
    if name not in BUNDLES and type(export.predictor) is not Translator:
        raise UserError(
            f"format {name} is for translators of text, not for config.task="
            f"{export.config.task}: choose bundle"
        )
    if os.path.lexists(output):
        raise UserError(f"{output} is there already: name a new folder")
    with files.partial_folder(output) as folder:
        format.write(export, folder)
        _write_card(export, name, folder)
        folder.rename(output)
    return output


def _write_card(export: Export, name: str, folder: Path) -> None:
    """Writes the model card README.md, which begins with metadata for the Hugging Face Hub."""
    config, scores = export.config, export.scores
    rows = [
        f"| {metric.label} | {metric.scale * scores[key]:{metric.format}} | "
        f"{markdown_text(scores.get(f'{key}_signature', '')).replace('|', BAR)} |"
        for key, metric in metrics_of(export.metrics, TABLE).items()
        if key in scores
    ]
    table = ["On the test set:", "", "| metric | value | signature |", "|---|---:|---|", *rows]
    network = getattr(export.predictor, "config", None) or export.predictor.model.config
    depths = {"encoder": network.num_encoder_layers, "decoder": network.num_decoder_layers}
    tags = ", ".join(f"`{c.tag}` for {c.name}" for c in corpora_of(config.data) if c.tag)
    text = TEXTS["card"].format(
        task=config.task,
        format=name,
        name=markdown_text(config.name),
        model=config.model,
        depths=" and ".join(f"{count} {side}" for side, count in depths.items() if count),
        source=config.data.source,
        usage=FORMATS[name].usage + f"\n\nA text begins with a tag: {tags}." * bool(tags),
        scores="\n".join(table) if rows else "This run was not scored.",
    )
    files.write_text(folder / "README.md", text)
