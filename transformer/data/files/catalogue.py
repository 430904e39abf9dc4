"""Public corpora that can be fetched: their addresses, checksums, licences and files.

A checksum is one that somebody published: of TensorFlow Datasets (its `checksums.tsv` and
`url_checksums`), of torchtext 0.9 (Multi30k, MD5 alone), or of the Git LFS file of the Hugging Face
hub (Europarl v10). If there is none, that of the first fetch is kept and holds for later ones.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple


class Download(NamedTuple):
    """A file to download.

    Attributes:
      name: of the file; if it is not an archive, also of the file that is kept.
      urls: its addresses, of which the first that answers is taken.
      checksum: `sha256:` or `md5:` and hexadecimal digits; '' if none is published.
      members: of an archive, the files that are kept, and their names then.
      classes: of an archive, folders of a class each, with a text in each file, and the names of
        the tables that are made of them: label<TAB>text, shuffled.
    """

    name: str
    urls: tuple[str, ...]
    checksum: str = ""
    members: Mapping[str, str] = {}
    classes: Mapping[str, tuple[str, ...]] = {}

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the files that are kept."""
        return (*self.members.values(), *self.classes) or (self.name,)


class Corpus(NamedTuple):
    """A public corpus.

    Attributes:
      size: of all downloads, for people.
      settings: keys of `config.data` that read its files.
    """

    title: str
    licence: str
    citation: str
    size: str
    downloads: tuple[Download, ...]
    settings: Mapping[str, str]


MULTI30K = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
MULTI30K_MD5 = {
    "train.en.gz": "0065d13af80720a55ca8153d126e6627",
    "train.de.gz": "81ff90b99829c0cd4b1b587d394afd39",
    "val.en.gz": "2b69aa9253948ac9f67e94917272dd40",
    "val.de.gz": "6e0e229eb049e3fc99a1ef02fb2d5f91",
    "test_2016_flickr.en.gz": "ff2c0fcb4893a13bd73414306bc250ae",
    "test_2016_flickr.de.gz": "efd67d314d98489b716b145475101932",
}
# Of manythings.org: codes (ISO 639-3) of languages with an archive of pairs, and their names.
LANGUAGES = dict(
    re.findall(
        r"(\w+) (\S+)",
        "afr Afrikaans ara Arabic aze Azerbaijani bel Belarusian ben Bengali bul Bulgarian "
        "cat Catalan ceb Cebuano ces Czech cmn Mandarin dan Danish deu German ell Greek "
        "est Estonian eus Basque fin Finnish fra French glg Galician heb Hebrew hin Hindi "
        "hun Hungarian ind Indonesian isl Icelandic ita Italian jpn Japanese kat Georgian "
        "khm Khmer kor Korean lit Lithuanian mar Marathi mkd Macedonian nds Low-Saxon "
        "nld Dutch nob Norwegian pes Persian pol Polish por Portuguese ron Romanian "
        "rus Russian slk Slovak slv Slovenian spa Spanish sqi Albanian srp Serbian "
        "swe Swedish tam Tamil tgl Tagalog tha Thai tur Turkish ukr Ukrainian urd Urdu "
        "vie Vietnamese yue Cantonese zsm Malay",
    )
)
TED = "datasets/ru_to_en"
EUROPARL = (
    "Philipp Koehn: Europarl: A Parallel Corpus for Statistical Machine Translation. MT Summit 2005"
)
EUROPARL_LICENCE = "its authors are not aware of any copyright restrictions of the material"
EUROPARL_V10 = "europarl-v10.de-en.tsv.gz"


def _files(source: str, target: str = "", splits: str = "train") -> dict[str, str]:
    """Returns the keys that read two files, whose names have {} for the name of the split."""
    keys = {"source": "files"}
    for key, split in zip(("train", "validation", "test"), splits.split(), strict=False):
        keys |= {f"{key}_source": source.format(split), f"{key}_target": target.format(split)}
    return keys


def _tatoeba(language: str) -> Corpus:
    """Returns the English sentences of Tatoeba with their translations into a language."""
    archive, file = f"{language}-eng.zip", f"eng-{language}.tsv"
    return Corpus(
        f"Tatoeba, English and {LANGUAGES[language]}: short sentences, chosen by manythings.org; "
        "grows with time",
        "CC BY 2.0 France; the third column names the authors of each pair",
        "www.manythings.org/anki and tatoeba.org",
        "about 10 MB for Spanish or German, less for most languages",
        (
            Download(
                archive,
                (f"https://www.manythings.org/anki/{archive}",),
                members={f"{language}.txt": file},
            ),
        ),
        _files(file),
    )


CATALOGUE: dict[str, Corpus] = {
    "multi30k": Corpus(
        "Multi30k task 1, English and German: captions of images, 29,000 pairs to train on",
        "for research, not for commercial use",
        "Desmond Elliott, Stella Frank, Khalil Sima'an, Lucia Specia: Multi30K: Multilingual "
        "English-German Image Descriptions. Workshop on Vision and Language 2016",
        "2 MB",
        tuple(
            Download(name, (f"{MULTI30K}/{name}",), f"md5:{md5}")
            for name, md5 in MULTI30K_MD5.items()
        ),
        _files("{}.en", "{}.de", "train val test_2016_flickr"),
    ),
    "ted_ru_en": Corpus(
        "TED talks, Russian and English, of the corpus ted_hrlr: 208,000 pairs, tokenised",
        "CC BY-NC-ND 4.0",
        "Ye Qi, Devendra Sachan, Matthieu Felix, Sarguna Padmanabhan, Graham Neubig: When and Why "
        "Are Pre-Trained Word Embeddings Useful for Neural Machine Translation? NAACL 2018",
        "131 MB",
        (
            Download(
                "qi18naacl-dataset.tar.gz",
                ("http://www.phontron.com/data/qi18naacl-dataset.tar.gz",),
                "sha256:216a86c3df4d4f522856fe9b920ff5be6b394d769cc88974ae8f9f5546953bbc",
                {
                    f"{TED}/{side}.{split}": f"{side}.{split}"
                    for split in ("train", "dev", "test")
                    for side in ("ru", "en")
                },
            ),
        ),
        _files("ru.{}", "en.{}", "train dev test"),
    ),
    "imdb": Corpus(
        "Large Movie Review Dataset: 25,000 reviews to train on and 25,000 to test, neg or pos",
        "none is stated; for research, with the citation",
        "Andrew L. Maas, Raymond E. Daly, Peter T. Pham, Dan Huang, Andrew Y. Ng, Christopher "
        "Potts: Learning Word Vectors for Sentiment Analysis. ACL 2011",
        "84 MB",
        (
            Download(
                "aclImdb_v1.tar.gz",
                (
                    "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
                    "http://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
                ),
                "sha256:c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
                classes={
                    f"{split}.tsv.gz": (f"aclImdb/{split}/neg", f"aclImdb/{split}/pos")
                    for split in ("train", "test")
                },
            ),
        ),
        {
            "source": "files",
            "train_source": "train.tsv.gz",
            "label_field": "0",
            "text_field": "1",
        },
    ),
    "shakespeare": Corpus(
        "Tiny Shakespeare: 1.1 MB of the plays",
        "public domain",
        "Andrej Karpathy: char-rnn. https://github.com/karpathy/char-rnn, 2015",
        "1 MB",
        (
            Download(
                "input.txt",
                (
                    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/"
                    "tinyshakespeare/input.txt",
                ),
                "sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
            ),
        ),
        {"source": "files", "train_source": "input.txt"},
    ),
    "europarl_v7_de_en": Corpus(
        "Europarl v7, German and English: 1.9 million pairs",
        EUROPARL_LICENCE,
        EUROPARL,
        "658 MB",
        (
            Download(
                "training-parallel-europarl-v7.tgz",
                ("https://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz",),
                "sha256:0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
                {
                    f"training/europarl-v7.de-en.{side}": f"europarl-v7.de-en.{side}"
                    for side in ("de", "en")
                },
            ),
        ),
        _files("europarl-v7.de-en.de", "europarl-v7.de-en.en"),
    ),
    "europarl_v10_de_en": Corpus(
        "Europarl v10, German and English: 1.8 million pairs",
        EUROPARL_LICENCE,
        EUROPARL,
        "215 MB",
        (
            Download(
                EUROPARL_V10,
                (
                    f"https://www.statmt.org/europarl/v10/training/{EUROPARL_V10}",
                    "https://huggingface.co/datasets/wmt/europarl/resolve/"
                    f"529fd310c7e22e5db35d6a2e2c03dbb1b705623a/data/v10/training/{EUROPARL_V10}",
                ),
                "sha256:3874e47fd9224d9d37a65dba4537b05cef8abb3f1e89471d2d8bc0894a3d072f",
            ),
        ),
        _files(EUROPARL_V10),
    ),
} | {f"tatoeba_{language}": _tatoeba(language) for language in LANGUAGES}
