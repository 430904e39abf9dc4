"""The flags of `launch.py` that only some modes read."""

import dataclasses
from typing import Any

from transformer.errors import UserError


def _flag(text: str, default: Any = None) -> Any:
    """Returns a field whose flag has this text in --help."""
    return dataclasses.field(default=default, metadata={"help": text})


@dataclasses.dataclass(frozen=True)
class Options:
    """The values of these flags; the table of modes lists the flags that each mode reads."""

    trial: int | None = _flag("train only the trial of the sweep with this number")
    processes: str | None = _flag(
        "processes that train this run together: HOST:PORT,COUNT,INDEX with the address of the "
        "first, and the number of this one from 0; or auto in a job of Slurm, Open MPI or TPUs"
    )
    linked_checkpoints: bool = _flag(
        "train a run whose checkpoints are a link out of its folder: it writes and deletes there",
        False,
    )
    seeds: int | None = _flag("train a config with this many seeds, from config.seed on")
    input: str | None = _flag(
        "input file, one text per line; default: standard input (import: a folder; align: the test "
        "set; evaluate: the held-out text, or any format of training text, or "
        "sacrebleu:wmt14/full,en-de, or behaviour)"
    )
    references: str | None = _flag(
        "comma-separated files with the references of --input, one per line"
    )
    name: str | None = _flag("name of the results of --input; default: the name of the file")
    output: str | None = _flag(
        "output file; default: standard output (plan, benchmark: also write JSON; compare: a "
        "folder, default runs/comparison; export, import: a new folder)"
    )
    format: str | None = _flag(
        "format in which to export: bundle (the default), html, ctranslate2, ctranslate2_int8, "
        "onnx, stablehlo or marian"
    )
    runs: str | None = _flag(
        "systems, the baseline first: RUN,RUN[,...]; a system is a run, its seeds as RUN+RUN, or a "
        "sweep over seeds; NAME=RUN names it"
    )
    levels: str | None = _flag(
        "comma-separated validation scores; compare reports after how many minutes each system "
        "reached them; default: the best that all reach"
    )
    set: str | None = _flag("name of the test set in evaluations/ of each run; default: its own")
    source_tag: str | None = _flag(
        "tag before every source, such as <2de>, for a model of several corpora"
    )
    links: str | None = _flag("file with the gold links of --input, in Pharaoh format")
    prompt: str | None = _flag("prompt for a single text, in place of --input")
    sentence: str | None = _flag("sentence whose attention to draw")
    picture: str | None = _flag("file of the picture whose attention to draw")
    translation: str | None = _flag("translation of --sentence; the model's own by default")
    hide_eos: bool = _flag("leave out the end-of-sentence column and renormalise", False)
    layer: int | None = _flag("draw only this layer (from 1), and open the explorer there")
    head: int | None = _flag("draw only this head (from 1), and open the explorer there")
    token: str | None = _flag(
        "print the nearest neighbours of this token or word, without pictures"
    )
    host: str | None = _flag("address to listen at; by default 127.0.0.1: this machine alone")
    port: int | None = _flag("port to listen at; by default 8000, and 0 for any that is free")
    also: str | None = _flag("comma-separated folders of further runs")
    server_name: str | None = _flag("comma-separated host names of a proxy")
    parts: str | None = _flag("parts to measure, such as training,decoding,start; by default all")
    peers: str | None = _flag(
        "peers to measure in turn, such as torch,ctranslate2; by default those installed"
    )
    baseline: str | None = _flag("JSON of an earlier benchmark to compare with")
    trace: str | None = _flag("folder for JAX's profiler traces of the steps")

    def needed_sentence(self) -> str:
        """Returns `--sentence`; raises UserError if it is missing."""
        if self.picture is not None:
            raise UserError(f"--picture={self.picture} is for models of pictures: leave it out")
        if self.sentence is None:
            what = "give the sentence whose attention is to be drawn"
            raise UserError(f"--sentence is missing: {what}")
        return self.sentence

    def only_sentence(self, reader: str) -> str:
        """Returns the same for a model of single texts; refuses the flags of translators."""
        sentence = self.needed_sentence()
        if self.translation is not None or self.hide_eos:
            rule = f"are for translators: {reader} reads one text"
            raise UserError(f"--translation and --hide_eos {rule}")
        return sentence
