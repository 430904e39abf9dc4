"""A tiny archive in the layout that TED is published in, and TFDS made to use it.

TFDS's own builder then reads, filters and writes it as it would the real one; only the
download is replaced.
"""

import contextlib
import io
import tarfile
from pathlib import Path
from unittest import mock

import tree
from tensorflow_datasets.core.download import DownloadManager

RUSSIAN_ENGLISH = [
    ("Это моя первая речь .", "This is my first talk ."),
    ("Мы живём на маленькой планете .", "We live on a small planet ."),
    ("Почему небо голубое ?", "Why is the sky blue ?"),
    ("Я хочу рассказать вам историю .", "I want to tell you a story ."),
    ("Она родилась в маленькой деревне .", "She was born in a small village ."),
    ("Никто не знал ответа .", "Nobody knew the answer ."),
    ("Вода покрывает большую часть Земли .", "Water covers most of the Earth ."),
    ("Ёжик ест яблоко .", "The hedgehog eats an apple ."),
    ("Мой отец был учителем .", "My father was a teacher ."),
    ("Давайте посмотрим на эту картину .", "Let &apos;s look at this picture ."),
    ("Здесь строка\u2028продолжается .", "Here the line\u2028goes on ."),
    ("Это работает .", "It works ."),
    ("Сколько это стоит ?", "How much does it cost ?"),
    ("Мы можем изменить мир .", "We can change the world ."),
    ("Музыка объединяет людей .", "Music unites people ."),
    ("Завтра будет дождь .", "It will rain tomorrow ."),
    ("Дети учатся быстро .", "Children learn quickly ."),
    ("Спасибо большое .", "Thank you very much ."),
    ("Это был долгий путь .", "It was a long way ."),
    ("Я вам верю .", "I believe you ."),
]
TED = {
    "train": RUSSIAN_ENGLISH[:14],
    "validation": RUSSIAN_ENGLISH[14:17],
    "test": RUSSIAN_ENGLISH[17:],
}


def ted(folder: Path) -> dict[str, Path]:
    """Returns the archive of TED talks by the name it is downloaded under."""
    files = {}
    for split, ending in (("train", "train"), ("validation", "dev"), ("test", "test")):
        files |= _two_files("datasets/ru_to_en/{}." + ending, ("ru", "en"), TED[split])
    return {"qi18naacl-dataset.tar.gz": _pack(folder / "ted.tar.gz", files)}


@contextlib.contextmanager
def downloads(archives: dict[str, Path]):
    """Within it, TFDS unpacks these archives where it would download and unpack."""

    def unpack(self, urls):
        def one(url):
            archive = archives[url.split("/")[-1]]
            folder = archive.parent / f"{archive.name}.unpacked"
            with tarfile.open(archive) as tar:
                tar.extractall(folder, filter="data")
            return folder

        return tree.map_structure(one, urls)

    with mock.patch.object(DownloadManager, "download_and_extract", unpack):
        yield


def _two_files(name, languages, pairs):
    sides = zip(*pairs, strict=True)
    return {
        name.format(language): "".join(f"{line}\n" for line in side)
        for language, side in zip(languages, sides, strict=True)
    }


def _pack(path, files):
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            data = text.encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return path
