"""Image sources: generated images, image files, and TensorFlow Datasets.

A model learns to predict the `label` of an item: its class, the answer to a question, or a caption.
"""

import hashlib
import importlib.util
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8
from ml_collections import ConfigDict
from PIL import Image

from transformer.data import held_out, tfds
from transformer.data.characters import canonicalize
from transformer.data.files.locate import corpus_folder, locate, split_sources
from transformer.data.files.rows import BrokenError, text_value
from transformer.data.files.table import ROWS_ALONE, TableFile, format_of
from transformer.data.files.text import open_unpacked, read_lines
from transformer.data.labelled import LabelledSource, check_classes
from transformer.data.pairs import SPLITS, LabelledPicture, choose_source
from transformer.data.pictures import scenes
from transformer.data.pictures.patches import MAX_PIXELS, read_classes, read_picture
from transformer.errors import UserError

IDX_BYTES, MAX_IDX = 8, 2**31  # the IDX type code of bytes; maximum bytes to read
MAX_FRACTION = 5000  # maximum number of items to hold out by fraction
EASY_VQA = "easy_vqa"  # a package that contains images
NUMBERED = re.compile(r"(.+\.\w+)#\d+(?=\t|$)")  # an image name and its caption number
CLASSES, ANSWERS, CAPTIONS = "classes", "answers", "captions"  # label types
# The config keys of the table columns for each label type.
FIELDS = {
    CLASSES: ("picture_field", "label_field"),
    ANSWERS: ("picture_field", "text_field", "label_field"),
    CAPTIONS: ("picture_field", "text_field"),
}


class Look(NamedTuple):
    """Image format of a model: pixels per side, channels, and whether to expect handwriting."""

    side: int
    channels: int
    ink: bool = False


class PictureSplit(NamedTuple):
    """Items and the images that they refer to.

    Attributes:
      digests: digests of the original images, or () if no split is held out. The choice of held-out
        items is based on these digests, and so does not depend on the `Look`.
    """

    items: list[LabelledPicture]
    pixels: UInt8[np.ndarray, "pictures S S C"]
    digests: Sequence[str] = ()


Splits = dict[str, PictureSplit]


def look_of(model: ConfigDict, data: ConfigDict) -> Look:
    """Returns the image format of a config's model."""
    return Look(model.picture_size, model.picture_channels, data.ink)


def open_pictures(data: ConfigDict, look: Look, label_type: str) -> LabelledSource:
    """Opens and validates the images configured in `config.data`; captions have no classes.

    Args:
      label_type: CLASSES, ANSWERS or CAPTIONS.
    """
    readers = {name: read for name, (read, types) in REGISTRY.items() if label_type in types}
    splits = choose_source(data, readers)(data, look, label_type)
    if unnamed := [split for split in SPLITS[1:] if split not in splits]:
        splits |= _hold_out(splits["train"], unnamed, data)
    items = {split: splits[split].items for split in SPLITS}
    labels, sizes = check_classes(items, data) if label_type != CAPTIONS else ((), {})
    return LabelledSource(items, labels, sizes, {s: splits[s].pixels for s in SPLITS})


def _hold_out(train: PictureSplit, splits: Sequence[str], data: ConfigDict) -> Splits:
    """Splits `train` into training and held-out items, with all items of an image together."""
    sizes = {}
    for split in splits:
        fraction = int(data[f"{split}_fraction"] * len(train.items))
        sizes[split] = data[f"{split}_size"] or min(fraction, MAX_FRACTION)

    def key(item: LabelledPicture) -> str:
        return train.digests[item.picture]

    place = Path(data.train_source or data.source)
    divided = held_out.hold_out(train.items, place, sizes, data, key)
    # With data.holdout=end, a split may begin between two items of one image.
    split_of = {key(item): split for split in divided for item in divided[split]}
    parts = {}
    for split in divided:
        items = [item for item in train.items if split_of[key(item)] == split]
        numbers = sorted({item.picture for item in items})
        new = {number: i for i, number in enumerate(numbers)}  # the images of other splits go
        items = [item._replace(picture=new[item.picture]) for item in items]
        parts[split] = PictureSplit(items, train.pixels[numbers])
    return parts


def _with_classes(labels: Sequence[str], pixels: np.ndarray, look: Look, name: str) -> PictureSplit:
    """Returns images with classes, such as digits, converted to the model's image format."""
    items = [LabelledPicture(i, f"{name}-{i}", "", label) for i, label in enumerate(labels)]
    digests = [hashlib.sha256(picture.tobytes()).hexdigest() for picture in pixels]
    return PictureSplit(items, resize(pixels, look), digests)


def resize(pixels: UInt8[np.ndarray, "N h w c"], look: Look) -> UInt8[np.ndarray, "N S S C"]:
    """Converts images to squares with the size and number of channels in `look`."""
    if pixels.shape[-1] == 3 and look.channels == 1:
        weights = np.array([0.299, 0.587, 0.114])  # weights of ITU-R 601-2, as in Pillow
        pixels = (pixels @ weights).round().astype(np.uint8)[..., None]
    elif pixels.shape[-1] < look.channels:
        pixels = np.repeat(pixels, look.channels, axis=-1)
    if pixels.shape[1:3] == (look.side, look.side):
        return pixels
    size = look.side, look.side
    squares = [Image.fromarray(p.squeeze()).resize(size, Image.Resampling.BILINEAR) for p in pixels]
    return np.stack([np.asarray(p).reshape(*size, look.channels) for p in squares])


# -- sources


def _open_scenes(data: ConfigDict, look: Look, label_type: str) -> Splits:
    splits, generate = {}, scenes.describe if label_type == CAPTIONS else scenes.generate
    for number, split in enumerate(SPLITS):
        noise, items, pictures = np.random.default_rng((data.seed, number)), [], []
        seed = data.seed * len(SPLITS) + number
        for i, asked in enumerate(generate(seed, data[f"{split}_size"])):
            boxes = tuple(thing.box for thing in asked.relevant)
            name = f"scene-{split}-{i}"
            items.append(LabelledPicture(i, name, asked.text, asked.answer, asked.kind, boxes))
            pictures.append(scenes.render(asked.things, noise))
        pixels = np.stack(pictures or [np.zeros((scenes.SIDE, scenes.SIDE, 3), np.uint8)])
        splits[split] = PictureSplit(items, resize(pixels, look))
    return splits


def _open_digits(data: ConfigDict, look: Look, label_type: str) -> Splits:
    from sklearn.datasets import load_digits  # takes a second to import

    numbers, labels = load_digits(return_X_y=True)
    pixels = (numbers.reshape(-1, 8, 8, 1) * 255 / 16).round().astype(np.uint8)
    return {"train": _with_classes([*map(str, labels)], pixels, look, "digits")}


def _open_idx(data: ConfigDict, look: Look, label_type: str) -> Splits:
    """Reads pairs of IDX files: images in `<split>_source`, their labels in `<split>_target`."""
    splits = {}
    for split in SPLITS:
        if split != "train" and not data[f"{split}_source"]:
            continue
        files = [locate(data, f"{split}_{side}") for side in ("source", "target")]
        pixels, labels = map(_read_idx, files)
        fits = pixels.ndim == 3 and pixels[:1].size and pixels[0].size <= MAX_PIXELS
        if not fits or labels.shape != pixels.shape[:1]:
            raise UserError(
                f"{files[0]} holds {list(pixels.shape)} numbers and {files[1]} "
                f"{list(labels.shape)}: name pictures in data.{split}_source and as many labels in "
                f"data.{split}_target"
            )
        names = [*map(str, labels)]
        splits[split] = _with_classes(names, pixels[..., None], look, split)
    return splits


def _read_idx(path: Path) -> UInt8[np.ndarray, "..."]:
    """Reads an IDX file, which may be compressed (LeCun et al., "The MNIST database")."""
    try:
        with open_unpacked(path) as file:
            data = np.frombuffer(file.read(MAX_IDX), np.uint8)  # more might not fit in memory
        if data[:3].tolist() != [0, 0, IDX_BYTES]:
            raise ValueError("it does not begin with the code of bytes")
        values = 4 + 4 * int(data[3])  # offset of the first value
        return data[values:].reshape(data[4:values].view(">u4").tolist())
    except (IndexError, ValueError) as error:
        raise UserError(
            f"{path} is not a file of bytes in IDX ({error}): fetch it again"
        ) from error


def _easy_vqa(data: ConfigDict, look: Look, label_type: str) -> Splits:
    """Returns images and questions from the package `easy-vqa`, or a folder in its format."""
    folder = corpus_folder(data) if data.path else None
    if folder is None:
        package = importlib.util.find_spec(EASY_VQA)
        if package is None or package.origin is None:
            raise UserError(
                "config.data.source=easy_vqa lacks its package: pip install easy-vqa, or set "
                "config.data.path to its folder `data`"
            )
        folder = Path(package.origin).parent / "data"
    splits = {}
    for split in ("train", "test"):
        file = folder / split / "questions.json"
        try:
            rows = [(str(q), str(a), int(i)) for q, a, i in json.loads(file.read_bytes())]
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise UserError(f"{file} cannot be read ({error}): install easy-vqa again") from error
        items = [(f"images/{i}.png", question, answer) for question, answer, i in rows]
        splits[split] = _read_split(items, folder / split, look)
    return splits


def _open_picture_files(data: ConfigDict, look: Look, label_type: str) -> Splits:
    """Returns the images listed in tables, or the images in class folders."""
    splits = {}
    for split, name in split_sources(data).items():
        if split == "train" or name:
            folder = corpus_folder(data) / Path(name).expanduser()
            if folder.is_dir() and label_type == CLASSES:
                splits[split] = _read_split(read_classes(folder), folder, look)
            else:
                path = locate(data, f"{split}_source", name)
                splits[split] = read_table(path, data, look, label_type)
    return splits


def read_table(path: Path, data: ConfigDict, look: Look, label_type: str) -> PictureSplit:
    """Returns the images listed in a table; `data` gives the columns. See `open_pictures`.

    The caption table of Flickr8k has no header, and is in the same folder as the image folder.
    """
    folder, first = path.parent, None
    if label_type == CAPTIONS and format_of(path) not in ROWS_ALONE:
        first = NUMBERED.match(next(read_lines(path), ""))
    if first:
        data = ConfigDict({**data, "picture_field": "0", "text_field": "1"})
        near = folder, *sorted(folder.glob("*/")), *sorted(folder.parent.glob("*/"))
        folder = next((each for each in near if (each / first[1]).is_file()), folder)
    keys = FIELDS[label_type]

    def make(*cells: Any) -> tuple[str, str, str]:
        """Returns the image name, question and label in a row."""
        values = [json.dumps(cell) if isinstance(cell, bool | int) else cell for cell in cells]
        for key, value in zip(keys, values, strict=True):
            if not text_value(value, key).strip():
                raise BrokenError(f"the {key.removesuffix('_field')} is empty")
        name, *question, label = (value.strip() for value in values)
        name = NUMBERED.sub(r"\1", name)
        if not (folder / name).is_file():
            raise BrokenError(f"{folder / name} is not a file")
        return name, "".join(question), label

    return _read_split([*TableFile(path, data, keys, make, exact=True)], folder, look)


def _read_split(items: Sequence[tuple[str, str, str]], folder: Path, look: Look) -> PictureSplit:
    """Returns items and their images from a folder; each image is read once."""
    numbers = {name: i for i, name in enumerate(dict.fromkeys(name for name, *_ in items))}
    pictures = [read_picture(folder / name, *look) for name in numbers]
    digests = [hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in numbers]
    labelled = [LabelledPicture(numbers[n], n, text, canonicalize(c)) for n, text, c in items]
    empty = np.zeros((0, look.side, look.side, look.channels), np.uint8)
    return PictureSplit(labelled, np.stack(pictures) if pictures else empty, digests)


def _open_tfds(data: ConfigDict, look: Look, label_type: str) -> Splits:
    splits = tfds.open_splits(data, ("picture", "label"), lambda picture, label: (picture, label))
    read = {}
    for split, records in splits.items():
        pictures, labels = zip(*records, strict=True)
        read[split] = _with_classes(labels, np.stack(pictures), look, split)
    return read


# The function for each source, and the label types that it provides.
REGISTRY: dict[str, tuple[Callable[[ConfigDict, Look, str], Splits], tuple[str, ...]]] = {
    "scenes": (_open_scenes, (ANSWERS, CAPTIONS)),
    "digits": (_open_digits, (CLASSES,)),
    "idx": (_open_idx, (CLASSES,)),
    "easy_vqa": (_easy_vqa, (ANSWERS,)),
    "files": (_open_picture_files, (CLASSES, ANSWERS, CAPTIONS)),
    "tfds": (_open_tfds, (CLASSES,)),
}
