"""Tiny archives in the layouts that TED and WMT14 are published in, and TFDS made to use them.

TFDS's own builders then read, filter and write them as they would the real ones; only the
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
GERMAN_ENGLISH = {
    "europarl": [("Ich erkläre die Sitzung für eröffnet.", "I declare the session open.")],
    "commoncrawl": [("Größe: 5 m²", "Size: 5 m²"), ("Öffnungszeiten", "Opening hours")],
    "news": [("Die Märkte fielen.", "Markets fell.")],
    "newstest2013": [("Eine republikanische Strategie", "A Republican strategy")],
    "newstest2014": [("Orlando Bloom liebt sie noch.", "Orlando Bloom still loves her.")],
}


def ted(folder: Path) -> dict[str, Path]:
    """Returns the archive of TED talks by the name it is downloaded under."""
    files = {}
    for split, ending in (("train", "train"), ("validation", "dev"), ("test", "test")):
        files |= _two_files("datasets/ru_to_en/{}." + ending, ("ru", "en"), TED[split])
    return {"qi18naacl-dataset.tar.gz": _pack(folder / "ted.tar.gz", files)}


def wmt14(folder: Path) -> dict[str, Path]:
    """Returns the archives of WMT14 German to English by the name they are downloaded under."""
    german, english = zip(*GERMAN_ENGLISH["newstest2014"], strict=True)
    text, languages = GERMAN_ENGLISH, ("de", "en")
    archives = {
        "training-parallel-europarl-v7.tgz": _two_files(
            "training/europarl-v7.de-en.{}", languages, text["europarl"]
        ),
        "training-parallel-commoncrawl.tgz": _two_files(
            "commoncrawl.de-en.{}", languages, text["commoncrawl"]
        ),
        "training-parallel-nc-v9.tgz": _two_files(
            "training/news-commentary-v9.de-en.{}", languages, text["news"]
        ),
        "dev.tgz": {
            **_two_files("dev/newstest2013.{}", languages, text["newstest2013"]),
            "dev/newstest2014-deen-src.de.sgm": _sgm(german),
            "dev/newstest2014-deen-ref.en.sgm": _sgm(english),
        },
    }
    return {name: _pack(folder / name, files) for name, files in archives.items()}


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


def _sgm(sentences):
    lines = [f'<seg id="{i}">{text}</seg>' for i, text in enumerate(sentences, 1)]
    return "\n".join(['<srcset setid="newstest2014"><doc>', *lines, "</doc></srcset>"])


def _pack(path, files):
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            data = text.encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return path
