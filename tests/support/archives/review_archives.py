"""Tiny files in the layouts that IMDb and SST-2 are published in, for TFDS.

TFDS's own code then unpacks, reads and writes them as it would the real ones; only the download
is replaced.
"""

import contextlib
import io
import tarfile
import zipfile
from pathlib import Path
from unittest import mock

import promise
from etils import epath
from tensorflow_datasets.core.download import DownloadManager

IMDB = {
    "train": [
        ("A film I will not forget.<br /><br />See it!", "pos"),
        ("Zwei Stunden für nichts: \u2028 dull.", "neg"),
        ("Warm, and funny \U0001f642", "pos"),
        ("I left after ten minutes.", "neg"),
        ("The best of its year.", "pos"),
    ],
    "test": [("Nothing works here.", "neg"), ("A joy.", "pos"), ("Skip it.", "neg")],
}
SST2 = {
    "train": [("hide new secretions", "negative"), ("that loves its characters", "positive")],
    "validation": [("it 's a charming journey .", "positive")],
}


def imdb(folder: Path) -> dict[str, Path]:
    """Returns the archive of IMDb's reviews by the name it is downloaded under."""
    path = folder / "aclImdb_v1.tar.gz"
    files = {"README": "Large Movie Review Dataset v1.0", "imdb.vocab": "the\nand\n"}
    for split, reviews in IMDB.items():
        for number, (text, label) in enumerate(reviews):
            files[f"{split}/{label}/{number}_{10 if label == 'pos' else 1}.txt"] = text
        files[f"{split}/labeledBow.feat"] = "9 0:9 1:1\n"
    files["train/unsup/0_0.txt"] = "Nobody says how this one was liked."
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            data = text.encode()
            entry = tarfile.TarInfo(f"aclImdb/{name}")
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return {path.name: path}


def sst2(folder: Path) -> dict[str, Path]:
    """Returns the archive of SST-2, whose published test set has no labels."""
    path = folder / "SST-2.zip"
    names = ("negative", "positive")
    with zipfile.ZipFile(path, "w") as archive:
        for split, file in (("train", "train"), ("validation", "dev")):
            rows = [f"{text} \t{names.index(label)}" for text, label in SST2[split]]
            archive.writestr(f"SST-2/{file}.tsv", "\n".join(["sentence\tlabel", *rows, ""]))
        archive.writestr("SST-2/test.tsv", "index\tsentence\n0\tuneasy mishmash of styles .\n")
    return {path.name: path}


@contextlib.contextmanager
def downloads(archives: dict[str, Path]):
    """Within it, TFDS takes these archives where it would download them."""

    def take(self, resource):
        return promise.Promise.resolve(epath.Path(archives[resource.url.split("/")[-1]]))

    with mock.patch.object(DownloadManager, "_download", take):
        yield
