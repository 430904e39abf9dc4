"""The table of `launch.py` modes: their functions, tasks and flags.

A mode consists of an entry here and a function. Modules are named but not imported, so that a
misspelt flag is reported before JAX starts.
"""

import dataclasses
import importlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from transformer.errors import UserError

TRAIN, PLAN, CLEAN, EVALUATE = "train", "plan", "clean", "evaluate"
BENCHMARK, ATTENTION, BEAM = "benchmark", "attention", "beam"
EXPLAIN = f"{ATTENTION} lens attribution"  # modes that read a text and its translation
READ_TEXT = (TRAIN, PLAN, CLEAN, BENCHMARK)  # modes that read the config's training corpus
HOST, PORT = "127.0.0.1", 8000  # of the server, by default
LINE_MODES = "align generate translate caption score classify import"
# Models that read a flag of `--mode=attention`; see `Options.needed`.
READERS = {
    "picture": "models of pictures",
    "translation": "translators and captioners",
    "hide_eos": "translators",
}
ROOM = __name__.rpartition(".process.")[0]  # the package that contains the modules of all modes


def _flag(modes: str, text: str, default: Any = None) -> Any:
    """Returns a field for a flag that these modes read; `text` describes it in --help."""
    return dataclasses.field(default=default, metadata={"modes": modes.split(), "help": text})


@dataclasses.dataclass(frozen=True)
class Options:
    """The values of mode-specific flags."""

    trial: int | None = _flag(TRAIN, "train only the trial of the sweep with this number")
    processes: str | None = _flag(
        TRAIN,
        "processes that train together: HOST:PORT,COUNT,INDEX (of the first process; number of "
        "this one, from 0), or auto in a job of Slurm, Open MPI or TPUs",
    )
    linked_checkpoints: bool = _flag(TRAIN, "train although checkpoints/ is a link", False)
    seeds: int | None = _flag(TRAIN, "train a config with this many seeds, from config.seed on")
    input: str | None = _flag(
        f"evaluate {LINE_MODES} intervene prune embeddings",
        "input file, one text per line; default: standard input (import: a folder; align: the test "
        "set; embeddings: contexts of --token; evaluate, intervene: any format of "
        "training text, or sacrebleu:wmt14/full,en-de; evaluate: or behaviour, contrasts)",
    )
    references: str | None = _flag("evaluate intervene", "comma-separated reference files")
    name: str | None = _flag(EVALUATE, "name of the results of --input; default: that of the file")
    output: str | None = _flag(
        f"compare {LINE_MODES} export prune",
        "output file; default: standard output (compare: a folder, default runs/comparison; "
        "export, import, prune: a new folder)",
    )
    format: str | None = _flag(
        "export translate",
        "bundle (default), html, ctranslate2, ctranslate2_int8, onnx, stablehlo or marian; "
        "translate: html, if the lines of --input have tags",
    )
    runs: str | None = _flag(
        "compare", "systems, baseline first: RUN,RUN[,...]; RUN+RUN: seeds of one; NAME=RUN: a name"
    )
    levels: str | None = _flag(
        "compare", "validation scores to time, such as 38,40; default: the best that all reach"
    )
    set: str | None = _flag("compare", "test set in evaluations/ of each run; default: its own")
    source_tag: str | None = _flag(
        f"evaluate {EXPLAIN} align translate score intervene prune beam",
        "tag before every source, such as <2de>, for a model of several corpora",
    )
    prefix_column: bool = _flag("translate", "second column: how the translation begins", False)
    glossary: str | None = _flag("translate", "file of terms: source, tab, target")
    column: str | None = _flag("translate", "column of a CSV or TSV: name, or number from 0")
    retranslate: bool = _flag("translate", "also translate entries that have a translation", False)
    confidence: bool = _flag("translate", "a tab and a probability follow each translation", False)
    alignments: bool = _flag("translate", "a tab and word links follow each translation", False)
    sort: str | None = _flag("translate", "confidence: rows with probability, least sure first")
    least_chrf: int | None = _flag("confidence", "least sentence chrF of a right line; default 60")
    prefix: str | None = _flag(BEAM, "text with which the translation begins")
    links: str | None = _flag("align", "file with the gold links of --input, in Pharaoh format")
    aligner: str | None = _flag(CLEAN, "eflomal-align: also write word links for data.train_links")
    attribution: bool = _flag("align", "also align words by integrated gradients (minutes)", False)
    prompt: str | None = _flag("generate", "prompt for a single text, in place of --input")
    sentence: str | None = _flag(f"{EXPLAIN} {BEAM}", "sentence whose attention, lens, ... to draw")
    picture: str | None = _flag(ATTENTION, "file of the picture whose attention to draw")
    translation: str | None = _flag(EXPLAIN, "translation of --sentence; default: the model's")
    hide_eos: bool = _flag(ATTENTION, "leave out the end-of-sentence column and renormalise", False)
    layer: int | None = _flag(ATTENTION, "draw only this layer (from 1); the explorer opens there")
    head: int | None = _flag(ATTENTION, "draw only this head (from 1), and open the explorer there")
    places: str | None = _flag("intervene", "places, such as encoder.1.*; default: all heads")
    change: str | None = _flag(
        "intervene",
        "zero (default), alone, mean, patch:TEXT, uniform, identity, previous, a factor",
    )
    heads: int | None = _flag("prune", "heads of each attention that remain")
    ranking: str | None = _flag("prune", "ranks heads by: loss (default), importance or random")
    token: str | None = _flag("embeddings", "print the nearest neighbours of this token or word")
    host: str | None = _flag("serve", f"address to listen at; by default {HOST}: only this machine")
    port: int | None = _flag("serve", f"port to listen at; by default {PORT}, and 0 for a free one")
    also: str | None = _flag("serve", "comma-separated folders of further runs")
    server_name: str | None = _flag("serve", "comma-separated host names of a proxy")
    cors: str | None = _flag("serve", "comma-separated origins of sites that may use /translate")
    peers: str | None = _flag(BENCHMARK, "peers, such as torch,torch_keep; default: all installed")

    def needed(self, name: str, *others: str) -> str:
        """Returns `--sentence` or `--picture`; raises UserError without it, or with `others`."""
        for other in others:
            self.refuse((other,), f"and its like are for {READERS[other]}: leave it out")
        if (value := getattr(self, name)) is None:
            raise UserError(f"--{name} is missing: give the {name} that the model is to read")
        return value

    def refuse(self, names: Iterable[str], why: str) -> None:
        """Raises UserError with the reason if one of these flags is set."""
        for name in names:
            if (value := getattr(self, name)) != getattr(Options, name):  # the default
                raise UserError(f"--{name}={value} {why}")


class Mode(NamedTuple):
    """A mode of `launch.py`.

    Attributes:
      module: the module of the function, relative to this package's parent; {task} stands for the
        name of the task's module. The function takes the run, and `Options` if the mode reads
        flags. It returns or yields the files that it writes, or returns None.
      help: the description in --help.
      operation: the operation that a task must support, or '' if the mode is for all tasks.
      log: the stream for log messages, which is "stderr" if results go to stdout.
      workdir: whether --workdir is required, or None if --workdir and --config are rejected.
      function: the name of the function, if this differs from the name of the mode.
    """

    name: str
    module: str
    help: str
    operation: str = ""
    log: str = "stderr"
    workdir: bool | None = True
    function: str = ""

    @property
    def flags(self) -> list[str]:
        """The fields of `Options` that the mode reads."""
        return [f.name for f in dataclasses.fields(Options) if self.name in f.metadata["modes"]]

    def fits(self, task: type[Any]) -> bool:
        """Returns whether a task class of `transformer.tasks` supports this mode."""
        return not self.operation or self.operation in task.operations

    def load(self, name: str) -> Callable:
        """Returns the function for the task `name`; raises UserError if the mode is not for it."""
        from transformer.tasks import REGISTRY  # imports jax

        if not self.fits(task := REGISTRY[name]):
            others = [mode.name for mode in MODES.values() if mode.fits(task)]
            others.remove(TRAIN)
            raise UserError(
                f"--mode={self.name} is not for config.task={name}: use {', '.join(others)}"
            )
        module = self.module.format(task=task.__module__.split(".")[-1])
        return getattr(importlib.import_module(f"{ROOM}.{module}"), self.function or self.name)


TABLE = (
    Mode(TRAIN, "command.command", "train a run or a sweep, or resume it", log="stdout"),
    Mode(PLAN, "benchmark.plan", "print what a training needs, and train nothing", workdir=False),
    Mode(BENCHMARK, "benchmark.benchmark", "measure the speed of a training", workdir=False),
    Mode("fetch", "modes.fetch", "download the corpus that config.data.fetch names", workdir=False),
    Mode(EVALUATE, "evaluate.evaluate", "score a run or sweep on any text", log="stdout"),
    Mode("compare", "results.compare", "compare runs", workdir=None, function="compare_runs"),
    Mode(CLEAN, "modes.clean", "write the pairs that cleaning keeps and drops", "translate"),
    Mode(ATTENTION, "modes.{task}", "draw the attention of all heads over a sentence"),
    Mode(BEAM, "modes.beam", "draw the search for a translation as a tree", BEAM),
    Mode("lens", "modes.explanations", "draw the token that each layer would write", "lens"),
    Mode("attribution", "modes.explanations", "draw from which tokens each is", "attribution"),
    Mode("align", "heads.alignment", "score cross-attention as word alignment", "translate"),
    Mode("confidence", "modes.confidence", "calibrate how sure translations are", "confidence"),
    Mode("generate", "modes.language_model", "continue each line, or a prompt", "generate"),
    Mode("translate", "modes.translation", "translate each line", "translate"),
    Mode("caption", "modes.captioning", "describe the picture that each line names", "caption"),
    Mode("score", "modes.translation", "write the log-probability of each line", "score"),
    Mode("classify", "modes.classification", "write the class of each line", "classify"),
    Mode("serve", "serve.serve", "serve a page to type into and a JSON API"),
    Mode("embeddings", "positions.embeddings", "draw maps of the token embeddings"),
    Mode("export", "modes.export", "write a run for other people or for other programs"),
    Mode("import", "modes.export", "import a Marian model", workdir=None, function="import_model"),
    Mode("intervene", "heads.effects", "score a model without each head, or with other changes"),
    Mode("prune", "heads.prune", "write a run with fewer heads, the most important ones"),
    Mode("positions", "positions.plots", "draw positional encodings"),
    Mode("report", "results.report_page", "write the report of a run again"),
)
MODES = {mode.name: mode for mode in TABLE}


def show(task: Any, variables: Any, folder: Path) -> Iterable[Path]:
    """Prints and plots outputs of a trained model; see `show` in each task's module."""
    name = type(task).__module__.split(".")[-1]
    return importlib.import_module(f"{ROOM}.modes.{name}").show(task, variables, folder)
