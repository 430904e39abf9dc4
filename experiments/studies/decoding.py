"""Compares the speed of decoding with CTranslate2 and Hugging Face, with the same weights.

    pip install -r requirements-peers.txt
    python -m experiments.studies.decoding --workdir=RUN [--split=test] [--sentences=1000]

All translate the first sentences of a split of a run's folder with float32 weights and the same
length penalty, in turn, several times, ours after once to compile, with all programs that it has
after many sentences of a length. Sentences per second are medians and include splitting into
subwords and joining them. First it is made sure that all give references
the same log-probability. At last it is counted in how many sentences the translations differ from
ours, and in how many of these ours has the higher score.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict
from rich.table import Table

from experiments.studies.command import Parser, exit_code, whole, wholes
from experiments.studies.ctranslate2 import CTranslate2
from experiments.studies.hugging_face import HuggingFace
from experiments.studies.peers import Peer, check
from experiments.text_io import print_table
from transformer.data import held_out
from transformer.data.pairs import Pair
from transformer.errors import UserError
from transformer.inference import search
from transformer.inference.translator import Translator
from transformer.metrics.text import corpus_scores
from transformer.workdir import TrainedRun, load_config, load_trained

OURS = "ours"
SCORED = 50  # sentences whose references must have the same score with all
CLOSE = 1e-4  # of log-probabilities, relative
SENTENCES_OF_ONE = 25  # measured at most for each sentence of a batch


class Setting(NamedTuple):
    """A setting: a beam size, and how many sentences are translated at once."""

    beam: int
    batch: int


class System(NamedTuple):
    """A named function from sentences to their translations."""

    name: str
    translate: Callable[[Setting, Sequence[str]], list[str]]


class Ours:
    """Our translator at several batch sizes."""

    def __init__(self, run: TrainedRun[Translator], decode: ConfigDict):
        self._run, self._decode = run, decode
        self._of: dict[int, Translator] = {}

    def __call__(self, setting: Setting, lines: Sequence[str]) -> list[str]:
        own = self._run.predictor
        if setting.batch not in self._of:
            decode = ConfigDict({**self._decode.to_dict(), "batch_size": setting.batch})
            tokenizers = own.source_tokenizer, own.target_tokenizer
            self._of[setting.batch] = Translator(own.model, *tokenizers, decode)
        found = self._of[setting.batch].translate(self._run.variables, lines, setting.beam)
        return [best[0].text for best in found]


def systems_of(
    run: TrainedRun[Translator], decode: ConfigDict, peers: Sequence[Peer]
) -> list[System]:
    """Returns all systems, ours first."""
    source, target = run.predictor.source_tokenizer, run.predictor.target_tokenizer

    def system(peer: Peer) -> System:
        def translate(setting: Setting, lines: Sequence[str]) -> list[str]:
            ids, limit = source.encode(lines), run.predictor.max_length
            found = peer.translate(ids, setting.beam, setting.batch, decode.alpha, limit)
            return [target.decode(each) for each in found]

        return System(peer.name, translate)

    return [System(OURS, Ours(run, decode)), *map(system, peers)]


def peers_of(run: TrainedRun[Translator], folder: Path) -> list[Peer]:
    """Returns the same model in other libraries."""
    translator, params, cores = run.predictor, run.variables["params"], os.cpu_count() or 1
    check(translator.model.config)
    ways = dict.fromkeys(
        [("float32", 1, cores), ("float32", cores, 1), ("int8", 1, cores), ("int8", cores, 1)]
    )
    converted = [CTranslate2(translator, params, folder / "model", *way) for way in ways]
    return [*converted, HuggingFace(translator, params, cores)]


def check_scores(run: TrainedRun[Translator], peers: Sequence[Peer], pairs: Sequence[Pair]) -> None:
    """Prints how far the log-probabilities of references are from ours, relative to these.

    Raises:
      UserError: with float32 they are not the same.
    """
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    ours = [score for score, _ in run.predictor.score(run.variables, sources, references)]
    source, target = run.predictor.source_tokenizer, run.predictor.target_tokenizer
    ids = source.encode(sources), target.encode(references)
    for peer in peers:
        theirs = peer.score(*ids)
        far = max(abs(a - b) / abs(a) for a, b in zip(ours, theirs, strict=True))
        print(f"{peer.name}: log-probabilities of {len(pairs)} references within {far:.1e} of ours")
        if far > CLOSE and "int8" not in peer.name:
            raise UserError(f"{peer.name} does not compute what our model does")


class Measured(NamedTuple):
    """Sentences per second of each system in each round, and the translations of each."""

    speeds: list[list[float]]
    texts: list[list[str]]


def measure(
    systems: Sequence[System], setting: Setting, lines: Sequence[str], rounds: int
) -> Measured:
    """Returns the speeds and translations of all systems, in turn; ours compiles before."""
    lines = lines[: SENTENCES_OF_ONE * setting.batch]
    found = Measured([[] for _ in systems], [[] for _ in systems])
    for system in systems:
        system.translate(setting, lines if system.name == OURS else lines[: setting.batch])
    for _ in range(rounds):
        for i, system in enumerate(systems):
            start = time.monotonic()
            found.texts[i][:] = system.translate(setting, lines)
            found.speeds[i].append(len(lines) / (time.monotonic() - start))
    return found


def speed_row(setting: Setting, found: Measured) -> list[str]:
    """Returns medians, ranges, and ours relative to each."""
    medians = list(map(statistics.median, found.speeds))
    cells = [
        f"{median:.1f} ({min(each):.1f} to {max(each):.1f})\n× {medians[0] / median:.2f}"
        for median, each in zip(medians, found.speeds, strict=True)
    ]
    return [str(setting.beam), str(setting.batch), *cells]


Scorer = Callable[[Sequence[str], Sequence[str]], list[float]]


def scorer(run: TrainedRun[Translator], alpha: float) -> Scorer:
    """Returns a function that scores each translation of a source, as searches compare them."""

    def score(sources: Sequence[str], texts: Sequence[str]) -> list[float]:
        found = run.predictor.score(run.variables, sources, texts)
        return [log_prob / tokens**alpha for log_prob, tokens in found]

    return score


def quality_rows(
    score: Scorer, beam: int, names: Sequence[str], found: Measured, pairs: Sequence[Pair]
) -> Iterator[list[str]]:
    """Yields BLEU of each system, and how its translations differ from ours."""
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    ours = found.texts[0]
    for name, theirs in zip(names, found.texts, strict=True):
        other = [i for i, text in enumerate(theirs) if text != ours[i]]
        chosen = [sources[i] for i in other]
        scores = (score(chosen, [texts[i] for i in other]) for texts in (ours, theirs))
        higher = sum(a > b for a, b in zip(*scores, strict=True))
        value = f"{corpus_scores(theirs, references)['bleu']:.2f}"
        yield [str(beam), name, value, str(len(other)), str(higher), str(len(other) - higher)]


def run(arguments: Sequence[str]) -> None:
    """Prints the tables of docs/results/decoding.md."""
    parser = Parser(__doc__)
    parser.add_argument("--workdir", type=Path, required=True, help="the run")
    parser.add_argument("--split", default="test", choices=("validation", "test"))
    parser.add_argument("--sentences", type=whole(1, 100_000), default=1000)
    parser.add_argument("--beams", type=wholes(1, 10_000), default="1,5")
    parser.add_argument("--batches", type=wholes(1, 10_000), default="1,8,64,256")
    parser.add_argument("--rounds", type=whole(1, 100), default=3)
    flags = parser.parse_args(arguments)
    search.MANY = 0  # sentences before these programs are compiled
    config = load_config(flags.workdir)
    config.decode.length_penalty = "average"
    trained = load_trained(flags.workdir, config)
    if not isinstance(trained.predictor, Translator):
        raise UserError(f"{flags.workdir} has no translator: name the run of one")
    pairs = held_out.read_pairs(flags.workdir, flags.split)[: flags.sentences]
    settings = [Setting(beam, batch) for beam in flags.beams for batch in flags.batches]
    last: dict[int, Measured] = {}
    with tempfile.TemporaryDirectory() as folder:
        peers = peers_of(trained, Path(folder))
        check_scores(trained, peers, pairs[:SCORED])
        systems = systems_of(trained, config.decode, peers)
        names, score = [system.name for system in systems], scorer(trained, config.decode.alpha)
        speed = Table("beam", "batch", *names, title="sentences per second, and ours relative")
        quality = Table("beam", "system", "BLEU", "other than ours", "ours scores higher", "lower")
        for setting in settings:
            found = measure(systems, setting, [pair.source for pair in pairs], flags.rounds)
            speed.add_row(*speed_row(setting, found))
            if len(found.texts[0]) == len(pairs):
                last[setting.beam] = found
            print(
                *setting, *(f"{statistics.median(each):.1f}" for each in found.speeds), flush=True
            )
        for beam, found in last.items():
            for row in quality_rows(score, beam, names, found, pairs):
                quality.add_row(*row)
        print_table(speed, keys=2)
        print_table(quality, keys=2)


if __name__ == "__main__":
    sys.exit(exit_code(run, sys.argv[1:]))
