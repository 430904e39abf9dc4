"""Configs at random, and training files that are damaged at random."""

import contextlib
import gzip
import math
import random
import shutil
import signal
import struct
import tempfile
from pathlib import Path
from unittest import mock

from lives import TEXTS, Outcome, write_config
from PIL import Image

import tiny_run
from configs import base
from transformer.config import flatten
from transformer.data.pictures.patches import ENDINGS

INTS = (-(2**63), -1, 0, 1, 2, 3, 7, 4097, 10**9, 2**31, 2**64)
FLOATS = (-1.0, 0.0, 1e-30, 0.5, 1.0, 7.5, 1e30, math.nan, math.inf)
STRINGS = (
    *("", " ", "x", "none", "auto", "..", "~", "/dev/null", "/", "\x07", "é" * 40, "(", "[a"),
    *("a+b", "=", "1", "-1", "rotary+", "a,b", "data=2", "word", "adam", "files", "{}", "\udcff"),
)
OTHERS = ("", "(", "a=b", "1,2", "encoder=0.1", "('a', 0.1)", "None", "x=nan")


def mutate(rng: random.Random, data: bytes) -> bytes:
    """Returns a training file, such as a text or a picture, that was damaged in a random way."""
    at = rng.randrange(len(data) + 1)
    near = rng.randrange(min(len(data), 64) or 1)  # the header, which says what follows
    return rng.choice(
        (
            lambda: data[:at],
            lambda: data[:at] + rng.randbytes(rng.randrange(1, 9)) + data[at:],
            lambda: data[:at] + bytes(rng.randrange(1, 99)) + data[at:],
            lambda: data[:at] + rng.randbytes(1) + data[at + 1 :],
            lambda: data[:near] + rng.randbytes(4) + data[near + 4 :],
            lambda: data[:near] + b"\xff\xff\xff\xff" + data[near + 4 :],
            lambda: data[at:] + data[:at],
            lambda: b"\xef\xbb\xbf" + data,
            lambda: data.decode("latin-1").encode("utf-16"),
            lambda: data.replace(b"\n", b"\r"),
            lambda: data.replace(b"\n", b""),
            lambda: data.replace(b"\t", b""),
            lambda: data[:at] + b"\n" * 99 + data[at:],
            lambda: data[:at] + b'"' + data[at:],
            lambda: data[:at] + "\u2028\x85\x1f\u200b".encode() + data[at:],
            lambda: b"a" * 10**6 + data,
            lambda: b"",
            lambda: rng.randbytes(999),
        )
    )()


def guess(place: Path, name: str, seed: int) -> list[Outcome]:
    """Prepares a training with one or two random values of keys."""
    rng = random.Random(f"guess {name} {seed}")
    flat = {key: value for key, value in flatten(base.get_config()).items() if key != "name"}
    flags = []
    for key in rng.sample(sorted(flat), rng.choice((1, 1, 2))):
        value = flat[key]
        pool = {bool: ("True", "False", "maybe"), int: INTS, float: FLOATS, str: STRINGS}
        text = rng.choice(pool.get(type(value), OTHERS))
        if key.endswith("_size") and key.startswith("data.") and isinstance(text, int):
            text = min(text, 4097)  # more synthetic pairs take long, as the user asked
        flags.append(f"--config.{key}={text}")
    return [_prepare("config", place, name, seed, place / name / "config.py", flags)]


def write_photos(rng: random.Random, folder: Path) -> Path:
    """Writes two classes of pictures, one picture of them damaged; returns a config."""
    formats = Image.registered_extensions()
    for name in ("cats", "dogs"):
        (folder / name).mkdir(parents=True)
        for number, ending in enumerate(rng.sample(ENDINGS, 6)):
            picture = Image.effect_noise((rng.randrange(1, 40), 24), 50).convert("RGB")
            picture.save(folder / name / f"{number}{ending}", format=formats[ending])
    path = rng.choice(sorted(folder.glob("*/*")))
    path.write_bytes(mutate(rng, path.read_bytes()))
    return write_page(folder, "photos", "data.validation_size = 1", "data.test_size = 1")


def write_idx(rng: random.Random, folder: Path) -> Path:
    """Writes the files of MNIST with few digits, one of them damaged; returns a config."""
    folder.mkdir()
    for part in ("train", "t10k"):
        for name, shape in (("images-idx3", (8, 28, 28)), ("labels-idx1", (8,))):
            header = struct.pack(f">4B{len(shape)}I", 0, 0, 8, len(shape), *shape)
            data = header + rng.randbytes(math.prod(shape))
            if name == "labels-idx1":
                data = header + bytes((0, 1) * 4)
            zipped = rng.random() < 0.5
            path = folder / f"{part}-{name}-ubyte{'.gz' * zipped}"
            path.write_bytes(gzip.compress(data) if zipped else data)
    path = rng.choice(sorted(folder.glob("*-ubyte*")))
    path.write_bytes(mutate(rng, path.read_bytes()))
    return write_page(folder, "mnist", "data.validation_size = 2")


def write_page(folder: Path, name: str, *changes: str) -> Path:
    """Writes a config that reads the files of its folder."""
    lines = [f'data.path = "{folder}"', f'data.cache_dir = "{folder}/cache"', *changes]
    body = "".join(f"    config.{line}\n" for line in lines)
    path = folder / "config.py"
    path.write_text(
        f"from configs import {name}\n\n\ndef get_config():\n"
        f"    config = {name}.get_config()\n{body}    return config\n"
    )
    return path


PICTURES = {"photos": write_photos, "idx": write_idx}


def damage(place: Path, name: str, seed: int) -> list[Outcome]:
    """Prepares a training on a damaged file."""
    rng = random.Random(f"damage {name} {seed}")
    folder = place / f"damage_{name}_{seed}"
    if name in PICTURES:
        config = PICTURES[name](rng, folder)
    else:
        config = write_config(folder, name)
        path = folder / TEXTS[name][0]
        path.write_bytes(mutate(rng, path.read_bytes()))
    outcome = _prepare("file", place, name, seed, config, [])
    if not outcome.failure:
        shutil.rmtree(folder)
    return [outcome]


def _prepare(
    kind: str, place: Path, name: str, seed: int, config: Path, flags: list[str]
) -> Outcome:
    """Runs the command up to its first step, in this process."""
    folder = Path(tempfile.mkdtemp(dir=place))

    def late(*_):
        raise TimeoutError("hung")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    again = f"{kind} {name} {seed}: --config={config} {' '.join(map(repr, flags))}"
    try:
        with (
            mock.patch("experiments.evaluate.run._train_and_score", return_value=None),
            contextlib.chdir(folder),
        ):
            ended = tiny_run.command(f"--config={config}", f"--workdir={folder / 'run'}", *flags)
    except BaseException as error:
        return Outcome(f"{kind} {name}", "failed", f"{again}: {type(error).__name__}: {error}")
    finally:
        signal.alarm(0)
        shutil.rmtree(folder, ignore_errors=True)
    last = ended.err.strip().splitlines()[-1:] or [""]
    if ended.code not in (0, 2) or "Traceback" in ended.err:
        return Outcome(f"{kind} {name}", "failed", f"{again}: {last[0]}")
    return Outcome(f"{kind} {name}", "refused in a line" if ended.code else "accepted")
