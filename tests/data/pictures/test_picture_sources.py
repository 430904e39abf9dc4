"""Sources of pictures: their splits, their classes, and what is wrong with files in one line."""

import gzip
import json
import shutil

import numpy as np
import pytest
from PIL import Image

import picture_archives
import review_archives
from configs import base
from transformer.data import held_out, tfds
from transformer.data.pictures import sources
from transformer.data.pictures.sources import ANSWERS, CLASSES, Look, open_pictures, resize
from transformer.errors import UserError

LOOK = Look(8, 3)
COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}


def settings(**changes):
    data = base.get_config().data
    with data.unlocked():
        data.update(changes)
    return data


def photos(folder, count=30):
    """Pictures of one colour each, in a folder for each, and a table of them."""
    rows = ["picture,text,label"]
    for i in range(count):
        name = list(COLOURS)[i % 3]
        (folder / "photos" / name).mkdir(parents=True, exist_ok=True)
        picture = Image.new("RGB", (10, 10), COLOURS[name])
        picture.putpixel((0, 0), (i, i, i))
        picture.save(folder / "photos" / name / f"{i}.png")
        rows += [
            f"photos/{name}/{i}.png,what colour ?,{name}",
            f"photos/{name}/{i}.png,is it {name} ?,yes",
        ]
    (folder / "train.csv").write_text("\n".join(rows) + "\n")
    return {"source": "files", "path": str(folder), "validation_size": 6, "test_size": 6}


def test_a_table_names_pictures_and_all_questions_of_one_are_in_one_split(tmp_path):
    data = settings(**photos(tmp_path), train_source="train.csv")
    source = open_pictures(data, LOOK, ANSWERS)
    assert source.labels == ("blue", "green", "red", "yes")
    names = {split: {item.name for item in items} for split, items in source.splits.items()}
    assert [len(items) for items in source.splits.values()] == [48, 6, 6]
    assert not names["test"] & (names["train"] | names["validation"])
    for split, items in source.splits.items():
        for item in items:
            colour = item.name.split("/")[1]
            middle = source.pixels[split][item.picture][4, 4]
            assert tuple(middle) == COLOURS[colour]
    assert open_pictures(data, LOOK, ANSWERS).splits == source.splits


def test_a_folder_for_each_class_needs_no_table(tmp_path):
    data = settings(**photos(tmp_path), train_source="photos")
    source = open_pictures(data, LOOK, CLASSES)
    assert source.labels == ("blue", "green", "red")
    assert [len(items) for items in source.splits.values()] == [18, 6, 6]
    assert all(item.question == "" for item in source.splits["train"])


def test_folders_train_and_test_are_those_splits_and_labels_are_canonical(tmp_path):
    photos(tmp_path, 12)
    for split in ("Training", "test"):
        shutil.copytree(tmp_path / "photos", tmp_path / "all" / split)
        (tmp_path / "all" / split / "red").rename(tmp_path / "all" / split / "Cafe\u0301")
    keys = {"source": "files", "path": str(tmp_path / "all"), "validation_size": 3}
    source = open_pictures(settings(**keys, train_source="."), LOOK, CLASSES)
    sizes = {split: len(items) for split, items in source.splits.items()}
    assert sizes == {"train": 9, "validation": 3, "test": 12}
    assert source.labels == ("Caf\u00e9", "blue", "green")


def test_a_bad_row_is_named(tmp_path):
    data = settings(**photos(tmp_path), train_source="train.csv")
    with (tmp_path / "train.csv").open("a") as file:
        file.write("photos/none.png,what colour ?,red\n")
    with pytest.raises(UserError, match=r"photos/none\.png is not a file"):
        open_pictures(data, LOOK, ANSWERS)


def test_what_is_held_out_does_not_depend_on_how_pictures_are_seen(tmp_path):
    for number in range(30):
        folder = tmp_path / "dark" if number % 2 else tmp_path / "light"
        folder.mkdir(exist_ok=True)
        shade = np.full((20, 20), 8 * number, np.uint8)
        Image.fromarray(shade).save(folder / f"{number}.png")
    changes = {"source": "files", "path": str(tmp_path), "validation_size": 5, "test_size": 6}
    data = settings(**changes, train_source=".")
    small, large = (open_pictures(data, look, CLASSES) for look in (Look(4, 1), Look(16, 3)))
    assert small.splits.keys() == large.splits.keys()
    for split, items in small.splits.items():
        assert [item.name for item in items] == [item.name for item in large.splits[split]]


def test_without_a_size_a_fraction_is_held_out(tmp_path, monkeypatch):
    changes = photos(tmp_path, 40) | {"validation_size": 0, "test_size": 0, "test_fraction": 0.2}
    data = settings(**changes, train_source="photos")
    source = open_pictures(data, LOOK, CLASSES)
    sizes = {split: len(items) for split, items in source.splits.items()}
    assert sizes == {"train": 28, "validation": 4, "test": 8}
    monkeypatch.setattr(sources, "MAX_FRACTION", 5)
    assert len(open_pictures(data, LOOK, CLASSES).splits["test"]) == 5


def idx_of(array):
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return header + array.astype(np.uint8).tobytes()


def write_idx(path, array):
    path.write_bytes(gzip.compress(idx_of(array)))


def damaged_idx():
    """Contents of files that are not IDX, of 20 pictures, by what is wrong."""
    whole = idx_of(np.zeros((20, 4, 4)))
    packed = gzip.compress(np.random.default_rng(0).bytes(99) + whole)
    return {
        "no IDX": b"no idx",
        "cut": packed[:60],
        "larger than its header says": gzip.compress(whole + bytes(10**6)),
        "more than the memory": gzip.compress(whole[:4] + b"\xff" * 12 + whole[16:]),
    }


@pytest.mark.parametrize("kind", damaged_idx().keys())
def test_a_damaged_idx_file_is_named(tmp_path, kind):
    (tmp_path / "images.gz").write_bytes(damaged_idx()[kind])
    write_idx(tmp_path / "labels.gz", np.arange(20) % 2)
    changes = {"source": "idx", "path": str(tmp_path), "validation_size": 4, "test_size": 4}
    data = settings(**changes, train_source="images", train_target="labels")
    with pytest.raises(UserError, match=r"images\.gz"):
        open_pictures(data, Look(28, 1), CLASSES)


def test_idx_files_are_read_as_they_are_published(tmp_path):
    pixels = np.arange(20 * 28 * 28, dtype=np.uint8).reshape(20, 28, 28)
    labels = np.arange(20) % 2
    write_idx(tmp_path / "images.gz", pixels)
    write_idx(tmp_path / "labels.gz", labels)
    changes = {"source": "idx", "path": str(tmp_path), "validation_size": 4, "test_size": 4}
    data = settings(**changes, train_source="images", train_target="labels")
    source = open_pictures(data, Look(28, 1), CLASSES)
    assert source.labels == ("0", "1")
    for split, items in source.splits.items():
        for item in items:
            number = int(item.name.split("-")[1])
            assert item.label == str(labels[number])
            np.testing.assert_array_equal(
                source.pixels[split][item.picture][..., 0], pixels[number]
            )


def test_easy_vqa_is_read_from_its_folder(tmp_path):
    for split in ("train", "test"):
        (tmp_path / split / "images").mkdir(parents=True)
        for i in range(4):
            Image.new("RGB", (64, 64), COLOURS["red"]).save(tmp_path / split / f"images/{i}.png")
        rows = [[f"is it {a} ?", a, i] for i in range(4) for a in ("yes", "no")]
        (tmp_path / split / "questions.json").write_text(json.dumps(rows))
    # All pictures are the same, so that no split can be held out of them.
    data = settings(source="easy_vqa", path=str(tmp_path), validation_size=0)
    source = open_pictures(data, LOOK, ANSWERS)
    assert [len(items) for items in source.splits.values()] == [8, 0, 8]
    assert source.splits["train"][3].question == "is it no ?"
    assert len(source.pixels["train"]) == 4
    (tmp_path / "test" / "questions.json").write_text("[[1]]")
    with pytest.raises(UserError, match="install easy-vqa again"):
        open_pictures(data, LOOK, ANSWERS)


def test_digits_need_no_download_and_have_no_questions():
    data = settings(source="digits", validation_size=100, test_size=200)
    source = open_pictures(data, Look(8, 1), CLASSES)
    assert sum(map(len, source.splits.values())) == 1797
    assert source.pixels["train"].max() == 255
    with pytest.raises(UserError, match="is not a source for this task: choose one of"):
        open_pictures(data, Look(8, 1), ANSWERS)


def test_other_sizes_and_channels_are_scaled():
    grey = np.full((2, 4, 6, 1), 100, np.uint8)
    assert resize(grey, LOOK).shape == (2, 8, 8, 3)
    colour = np.full((2, 4, 4, 3), (255, 0, 0), np.uint8)
    assert resize(colour, Look(4, 1))[0, 0, 0] == 76  # 0.299 of 255


# -- the files of a run


def held(folder):
    data = settings(source="scenes", train_size=300, validation_size=3, test_size=5)
    source = open_pictures(data, Look(48, 3), ANSWERS)
    splits = {split: source.splits[split] for split in ("validation", "test")}
    held_out.save(folder, splits, {split: source.pixels[split] for split in splits})
    return source


def test_held_out_pictures_are_read_as_they_were(tmp_path):
    source = held(tmp_path)
    labels = {item.label for items in source.splits.values() for item in items}
    items, pixels = held_out.read_pictures(tmp_path, "test", labels)
    assert items == source.splits["test"]
    np.testing.assert_array_equal(pixels, source.pixels["test"])


@pytest.mark.parametrize("name", ["test.npy", "test.jsonl"])
def test_damaged_pictures_are_named(tmp_path, name):
    source = held(tmp_path)
    labels = {item.label for items in source.splits.values() for item in items}
    path = tmp_path / "held_out" / name
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=name.replace(".", r"\.")):
        held_out.read_pictures(tmp_path, "test", labels)


def test_cifar_is_prepared_by_the_builder_of_tfds(tmp_path):
    keys = {"tfds_dir": str(tmp_path / "tfds"), "tfds_name": "cifar10"}
    keys |= {"tfds_fields": ("image", "label"), "tfds_train": "train[:60%]"}
    data = settings(source="tfds", **keys, tfds_validation="train[60%:]")
    with review_archives.downloads(picture_archives.cifar10(tmp_path)):
        with pytest.raises(UserError, match="the validation text has the labels"):
            open_pictures(data, Look(32, 3), CLASSES)  # two pictures of a class each
        splits = tfds.open_splits(data, ("picture", "label"), lambda *both: both)
    pictures = [both for split in ("train", "validation") for both in splits[split]]
    assert sorted(label for _, label in pictures) == picture_archives.NAMES
    for pixels, label in pictures:
        expected = picture_archives.cifar_picture(picture_archives.NAMES.index(label))
        np.testing.assert_array_equal(pixels, expected)
