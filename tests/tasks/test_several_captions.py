"""A picture with several captions is one sentence with as many references."""

import itertools

import numpy as np
import pytest
import sacrebleu
from PIL import Image

from configs import photos
from experiments.results.outputs import read_sentences
from experiments.results.statistics import score_of
from experiments.results.tasks import REGISTRY
from transformer.data.pictures.sources import CAPTIONS as LEARNT
from transformer.data.pictures.sources import look_of, open_pictures
from transformer.files import write_text
from transformer.inference.hypotheses import Translation
from transformer.tasks.captioning import CaptionTask
from transformer.tasks.pair_scores import text_files

PICTURES, WORDS = 17, ("red", "blue", "small", "large", "old", "dog", "cat", "runs", "sleeps")


def album(folder, counts, place="", table="captions.csv"):
    """Pictures with these numbers of captions in a place, and their table; returns its name."""
    rng, is_csv = np.random.default_rng(0), table.endswith(".csv")
    lines = ["picture,text"] * is_csv
    (folder / place).mkdir(exist_ok=True)
    for i, count in enumerate(counts):
        name = f"{1000 + i}_a.jpg"
        Image.fromarray(rng.integers(0, 255, (9, 9, 3), np.uint8)).save(folder / place / name)
        texts = (" ".join(rng.choice(WORDS, rng.integers(5, 30))) for _ in range(count))
        lines += [f"{name},{t}" if is_csv else f"{name}#{n}\t{t}" for n, t in enumerate(texts)]
    (folder / table).write_text("".join(f"{line}\n" for line in lines))
    return table


def captioner(folder, table, **data):
    """The task of a config for the pictures of a folder, which holds 20 captions out twice."""
    config = photos.get_config("captions")
    config.model.picture_size = 8
    config.data.path, config.data.train_source = str(folder), table
    config.data.update({"validation_size": 20, "test_size": 20, **data})
    return CaptionTask(config)


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    folder = tmp_path_factory.mktemp("flickr")
    return captioner(folder, album(folder, [5] * PICTURES))


@pytest.mark.parametrize("place", ["Flicker8k_Dataset", "../Flicker8k_Dataset"])
def test_the_table_of_flickr8k_is_read_in_or_next_to_the_folder_of_its_pictures(tmp_path, place):
    folder = tmp_path / "data"
    folder.mkdir()
    config = captioner(folder, album(folder, [2] * 30, place, "Flickr8k.token.txt")).config
    source = open_pictures(config.data, look_of(config.model, config.data), LEARNT)
    items = [item for split in source.splits.values() for item in split]
    assert len(items) == 60
    assert {item.name for item in items} == {f"{1000 + i}_a.jpg" for i in range(30)}


def test_the_first_caption_of_each_picture_has_the_best_scores(task):
    for final in (False, True):
        pairs = task.decoded_pairs("test", final)
        first = {pair.source: pair.target for pair in reversed(pairs)}
        scores = task.text_scores([first[pair.source] for pair in pairs], pairs, final)
        assert (scores["bleu"], scores["exact_match"]) == (pytest.approx(100), 100)
        assert scores["sentences"] == 4
    assert scores["ter"] == 0
    assert "nrefs:5|" in scores["bleu_signature"]
    last = task.text_scores([pair.further[-1] for pair in pairs], pairs, True)
    assert last["exact_match"] == 100


def test_files_with_unequal_numbers_of_references_have_the_same_scores(tmp_path):
    counts = [1, 3, 2, 5, 4] * 6
    task = captioner(tmp_path, album(tmp_path, counts), validation_size=8, test_size=30)
    pairs = task.decoded_pairs("test", True)
    lists = [*itertools.zip_longest(*(pair.references for pair in pairs))]
    texts = [pair.references[-1][:-2] for pair in pairs]
    scores = task.text_scores(texts, pairs, True)
    assert "nrefs:var|" in scores["bleu_signature"]
    assert scores["bleu"] == pytest.approx(sacrebleu.BLEU().corpus_score(texts, lists).score)
    made = [Translation(text, -1.0, 3) for text in texts]
    for name, lines in text_files("test", pairs, made).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_text(tmp_path / name, "".join(f"{line}\n" for line in lines))
    for name, of_sums in REGISTRY["captioning"].of_sums.items():
        score = score_of(scores["counts"][name], of_sums)
        assert score == pytest.approx(scores[name], abs=1e-9)
    for pair, sentence in zip(pairs, read_sentences(tmp_path, "test"), strict=True):
        assert sentence.reference in pair.references


def test_the_loss_is_of_each_caption_and_its_interval_over_pictures(task):
    pairs = task.text.pairs["test"]
    assert [pair.target for pair in task.loss_pairs("test")] == [
        text for pair in pairs for text in pair.references
    ]
    batches = list(task.held_out_batches("test"))
    labels = [row for batch in batches for row in np.asarray(batch.labels) if row.any()]
    encode, texts = task.predictor.target_tokenizer.encode, task.texts_of_rows("test")
    assert len(labels) == len(texts) == 20
    assert texts != sorted(texts)  # the control: rows are grouped by length
    for row, picture in zip(labels, texts, strict=True):
        assert row[row > 0][:-1].tolist() in encode(list(pairs[picture].references))


@pytest.mark.parametrize("holdout", ["hash", "end"])
def test_the_captions_of_a_picture_are_in_one_split(tmp_path, holdout):
    table = album(tmp_path, [5] * PICTURES)
    lines = (tmp_path / table).read_text().splitlines(keepends=True)
    lines.insert(1, lines[1])  # so that no split ends at a picture
    (tmp_path / table).write_text("".join(lines))
    task = captioner(tmp_path, table, holdout=holdout, validation_size=12, test_size=13)
    source = open_pictures(task.config.data, look_of(task.config.model, task.config.data), LEARNT)
    names = {split: [item.name for item in items] for split, items in source.splits.items()}
    assert sum(map(len, names.values())) == 5 * PICTURES + 1
    for one, other in itertools.combinations(names.values(), 2):
        assert not {*one} & {*other}
