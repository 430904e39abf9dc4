"""Whether two versions of the code compute the same: toy runs of every task and mode, bit for bit.

    python tests/support/same_outputs.py make FOLDER [RUN ...]      (from the root of each checkout)
    python tests/support/same_outputs.py compare FOLDER FOLDER

`make` runs the commands below, or those of the runs named (`plain`, `words` ...), and keeps all
that they print and write; minutes on two cores.
`compare` compares the values of every array, pixel, number and line, apart from times and versions,
and names each file that differs. Machines differ in bits: make both on one.
"""

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

MODEL = {"model.d_model": 16, "model.d_ff": 24, "model.num_heads": 2}
MODEL |= {"data.batch_tokens": 512, "data.num_buckets": 2, "optimizer.warmup_steps": 5}
MODEL |= {"data.train_size": 300, "data.validation_size": 20, "data.test_size": 12}
MODEL |= {"train.steps": 30, "train.log_every": 10, "train.evaluate_every": 15}
MODEL |= {"evaluate.bootstrap": 20}
LAYERS = {"model.num_encoder_layers": 1, "model.num_decoder_layers": 1}
QUICK = {**MODEL, **LAYERS, "tokenizer.vocab_size": 300, "evaluate.average_last_n": 2}
SENTENCE = "My letter lay on this chair two days ago"
VARIANTS = {
    "plain": "",
    "gated": "model.activation=swiglu model.norm=rms model.positions=rotary model.num_kv_heads=1 "
    "optimizer.name=adamw optimizer.weight_decay=0.1 train.ema_decay=0.9",
    "relative": "model.positions=relative_shaw+relative_bias model.talking_heads=True "
    "model.query_key_norm=l2 optimizer.gradient_accumulation_steps=2 "
    "model.dropout_attention=0.1 model.dropout_layer=0.1",
    "scanned": "model.scan_layers=True model.num_encoder_layers=2 model.num_decoder_layers=2 "
    "model.positions=split model.remat=True model.tied_embeddings=decoder "
    "tokenizer.kind=word data.max_oov_rate=1.0",
    "recurrent": "model.architecture=recurrent model.cell=gru",
    "multiplicative": "model.architecture=recurrent model.cell=lstm_peephole "
    "model.recurrent_attention=multiplicative",
}
ANALYSES = ("intervene", "positions", "embeddings", "report")
SWEEP = """
from configs import CONFIG as start

def get_config():
    config = start.get_config()
    config.update_from_flattened_dict(CHANGES)
    return config

def sweep():
    yield from POINTS
"""


def launch(folder: str, config: str | None = None, changes=(), mode: str = "train", **flags):
    """A command of `launch.py`: its arguments, and its standard input."""
    stdin = flags.pop("stdin", "")
    arguments = [f"--workdir=FOLDER/{folder}", f"--mode={mode}"]
    arguments += [f"--config={config}"] if config else []
    arguments += [f"--config.{key}={value}" for key, value in dict(changes).items()]
    return [*arguments, *(f"--{key}={value}" for key, value in flags.items())], stdin


def translators():
    """Commands of translation: training of each variant, and every mode of the first."""
    for name, text in VARIANTS.items():
        changes = dict(change.split("=") for change in text.split())
        yield launch(name, "configs/quickstart.py", {**QUICK, **changes})
        yield launch(name, mode="translate", stdin=f"{SENTENCE}\nWe sleep\n")
        yield launch(name, mode="attention", sentence=SENTENCE)
    name = "plain"
    yield launch(name, mode="evaluate")
    yield launch(name, mode="evaluate", changes={"decode.beam_size": 2})
    yield launch(name, mode="translate", changes={"decode.num_best": 3}, stdin=SENTENCE + "\n")
    yield launch(name, mode="score", stdin="We sleep\tWir schlafen\n")
    for mode in ("align", *ANALYSES):
        yield launch(name, mode=mode)
    yield launch(name, mode="embeddings", token="ter")
    yield launch(name, changes={"train.steps": 40})
    longer = {"data.source": "reverse", "data.length_generalization_size": 10}
    longer |= {"tokenizer.kind": "word", "tokenizer.vocab_size": 30}
    yield launch("reverse", "configs/quickstart.py", {**QUICK, **longer})


def language_models():
    """Commands of language models: words, packed lines, a recurrent model, each mode."""
    changes = {**MODEL, "model.num_decoder_layers": 1, "data.batch_tokens": 64, "data.context": 16}
    yield launch("words", "configs/next_word.py", changes)
    yield launch("lstm", "configs/next_word.py", {**changes, "model.architecture": "recurrent"})
    packed = {"data.source": "grammar", "data.max_oov_rate": 1.0, "data.batch_tokens": 512}
    packed |= {"tokenizer.vocab_size": 300}
    yield launch("packed", "configs/next_word.py", {**changes, **packed})
    few = {"decode.max_new_tokens": 8}
    for folder in ("words", "lstm"):
        yield launch(folder, mode="generate", prompt="the only true", changes=few)
    yield launch("words", mode="generate", stdin="the only\n", changes={"decode.search": "beam"})
    yield launch("words", mode="score", stdin="the only true wisdom\n")
    yield launch("words", mode="attention", sentence="the unexamined life is not")
    for mode in ("evaluate", *ANALYSES):
        yield launch("words", mode=mode)


def classifiers():
    """Commands of classification: each kind of model, each mode."""
    changes = {**MODEL, "model.num_encoder_layers": 1}
    for kind in ("transformer", "bag_of_embeddings", "bigrams", "recurrent"):
        yield launch(f"reviews_{kind}", f"configs/toy_reviews.py:{kind}", changes)
        yield launch(f"reviews_{kind}", mode="classify", stdin="the plot is not dull .\n")
    for mode in ("evaluate", *ANALYSES):
        yield launch("reviews_transformer", mode=mode)
    yield launch("reviews_transformer", mode="attention", sentence="the plot is not dull .")


def pictures(folder: Path):
    """Commands of pictures: classes, captions and questions, each mode."""
    changes = {**MODEL, "model.head_size": 0, "model.num_encoder_layers": 1}
    file, question = folder / "picture.png", "what colour is the small circle ?"
    pixels = np.arange(48 * 48 * 3, dtype=np.uint32) * 2654435761 % 256
    Image.fromarray(pixels.astype(np.uint8).reshape(48, 48, 3)).save(file)
    yield launch("digits", "configs/mnist.py:digits", {**changes, "data.batch_tokens": 1024})
    yield launch("captions", "configs/scenes_captions.py", {**changes, **LAYERS})
    yield launch("questions", "configs/scenes_vqa.py", changes)
    yield launch("captions", mode="caption", stdin=f"{file}\n")
    yield launch("digits", mode="classify", stdin=f"{file}\n")
    yield launch("questions", mode="classify", stdin=f"{file}\t{question}\n")
    for name in ("digits", "captions"):
        yield launch(name, mode="attention", picture=file)
    yield launch("questions", mode="attention", picture=file, sentence=question)
    for name in ("digits", "captions", "questions"):
        for mode in ("evaluate", "report"):
            yield launch(name, mode=mode)


def own_text(folder: Path):
    """Commands of a text of one's own, with names and numbers: each mode that needs files."""
    nouns = ("dog", "cat", "house", "river", "window", "garden", "teacher", "friend", "ox")
    pairs = [(a, b, n) for n in range(4) for a in nouns for b in nouns]
    lines = {"en": "The {} sees the {} of Ada{}, at 1{}:05.", "de": "{} {} Ada{} 1{}:05"}
    for side, line in lines.items():
        texts = (line.format(a, b, a.title() * (n % 2), n) for a, b, n in pairs)
        (folder / f"letters.{side}").write_text("".join(f"{text}\n" for text in texts), "utf-8")
    names = {"data.train_source": "letters.en", "data.train_target": "letters.de"}
    changes = {**QUICK, **names, "data.path": folder, "tokenizer.vocab_size": 400}
    changes |= {"recipe": "none", "train.patience": 0, "evaluate.perturbed_sentences": 6}
    page = "configs/own_text.py"
    yield launch("letters", page, changes)
    yield launch("letters_other", page, {**changes, "seed": 1})
    typed = "The dog sees Ana María.\nA CAT SEES 17:45\n42\n"
    yield launch("letters", mode="translate", stdin=typed)
    yield launch("letters", mode="evaluate", input="behaviour")
    for mode in ("clean", "plan"):
        yield launch("letters", page, changes, mode)
    runs = f"{folder}/letters,{folder}/letters_other"
    yield [f"--runs={runs}", "--mode=compare", f"--output={folder}/compared"], ""
    for form in ("html", "stablehlo"):
        yield launch("letters", mode="export", format=form, output=folder / f"exported_{form}")


def sweeps(folder: Path):
    """Commands of sweeps: in turn and vmapped, of numbers and of structure."""
    trials = [{"seed": s, "optimizer.learning_rate": rate} for s in (0, 1) for rate in (1e-3, 1e-2)]
    wide = [{"model.d_ff": width, "seed": seed} for width in (16, 24) for seed in (0, 1)]
    reviews = {**MODEL, "model.num_encoder_layers": 1}
    for name, config, changes, drawn in (
        ("sequential", "quickstart", {**QUICK, "sweep.parallel": "sequential"}, [*trials, *wide]),
        ("vmapped", "quickstart", {**QUICK, "sweep.parallel": "vmap"}, trials),
        ("sweep_reviews", "toy_reviews", {**reviews, "sweep.parallel": "vmap"}, trials),
    ):
        text = SWEEP.replace("CONFIG", config).replace("CHANGES", repr(changes))
        file = folder / f"{name}.py"
        file.write_text(text.replace("POINTS", repr(drawn)))
        yield launch(name, str(file))


def make(folder: Path, names: list[str]) -> None:
    """Runs all commands, or those of the runs named, and keeps what each printed."""
    folder.mkdir(parents=True)
    everything = [*translators(), *language_models(), *classifiers(), *pictures(folder)]
    everything += [*own_text(folder), *sweeps(folder)]
    chosen = {f"--workdir=FOLDER/{name}" for name in names}
    everything = [each for each in everything if not chosen or each[0][0] in chosen]
    for number, (arguments, stdin) in enumerate(everything):
        words = [word.replace("FOLDER", str(folder)) for word in arguments]
        if any(word.startswith("--workdir=") for word in words):
            words.append(f"--config.data.cache_dir={folder / 'cache'}")
        command = [sys.executable, "launch.py", *words]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True)
        # A sweep's table, which lies in results.csv too, has a column of speeds.
        lines = [line for line in done.stdout.splitlines() if not line.startswith("|")]
        kept = {"code": done.returncode, "out": "\n".join(lines)}
        print(f"{number + 1}/{len(everything)}", *arguments[:2], done.returncode, flush=True)
        if done.returncode:
            print(done.stderr[-2000:])
        (folder / f"command_{number:03d}.json").write_text(json.dumps(kept))


# Of what is written as text: times, rates, versions, places.
TIMES = re.compile(
    r"(?<![\w,.])[\d,.]+ (?:target )?\w+/s|\d+:\d\d:\d\d left"
    r"|[\d.,:]+ ?(?:s|ms|min|minutes)\b|disk: free.*?\bGB"
)
OF_PATH = re.compile(r"(?<=_)[0-9a-f]{6}(?=/)")  # the digest of the path of a picture
TEXTS = (".json", ".jsonl", ".csv", ".txt", ".tsv", ".md", ".html", ".py")
VOLATILE = re.compile(
    r"second|time|commit|date|host|hardware|command|version|digest|path|minutes|dir|^sha256$"
)


def plain(value):
    """JSON without what no two runs share."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if not VOLATILE.search(k)}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return shared(value) if isinstance(value, str) else value


def shared(text):
    """A text without times, rates and digests of places."""
    text = text.replace("compiling ...\n", "")  # if no program was in the cache
    return OF_PATH.sub("PATH", TIMES.sub("TIME", text))


def content(file: Path, root: Path):
    """What of a file must be the same."""
    if file.suffix == ".npz":
        with np.load(file) as arrays:
            return {name: arrays[name].tobytes() for name in arrays}
    if file.suffix in (".png", ".gif"):
        return np.asarray(Image.open(file)).tobytes()
    if file.suffix not in TEXTS:
        return file.read_bytes()
    text = file.read_text("utf-8").replace(str(root.absolute()), "FOLDER")
    if file.name == "run.json":
        return plain({**json.loads(text), "environment": None})
    if file.suffix == ".json":
        return plain(json.loads(text))
    if file.suffix == ".jsonl":
        return [plain(json.loads(line)) for line in text.splitlines()]
    if file.suffix == ".csv":
        return [plain(row) for row in csv.DictReader(io.StringIO(text))]
    return shared(text)


# Made for one machine or moment, or drawn over minutes; of checkpoints the weights that were stored
# apart are compared, and of pages and tables of a sweep the numbers in `results.csv`.
SKIPPED = re.compile(
    r"^cache/|/lock$|events\.out|\.db|^\w+\.py$"
    r"|/checkpoints/\d+/|study\.id"
    r"|/training\.png|/report\.html|/index\.html|/results\.md"
)


def compare(old: Path, new: Path) -> int:
    """Prints the files that differ or are missing; returns how many."""

    def files(folder):
        names = {f.relative_to(folder).as_posix(): f for f in folder.rglob("*") if f.is_file()}
        return {OF_PATH.sub("PATH", n): f for n, f in names.items() if not SKIPPED.search(n)}

    one, other = files(old), files(new)
    for name in sorted(one.keys() ^ other.keys()):
        print("only in", old if name in one else new, name)
    both = sorted(one.keys() & other.keys())
    different = [name for name in both if content(one[name], old) != content(other[name], new)]
    for name in different:
        print("differs:", name)
    print(f"{len(both)} files compared, {len(different)} differ")
    return len(different) + len(one.keys() ^ other.keys())


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(Path(sys.argv[2]).absolute(), sys.argv[3:])
    else:
        sys.exit(compare(Path(sys.argv[2]), Path(sys.argv[3])) > 0)
