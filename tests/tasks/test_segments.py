"""Long lines are split into segments that fit, without a loss, and joined in their order."""

import json
import re

import pytest

from configs import base
from transformer.data.corpora import languages_of
from transformer.data.tokenizer import UNK_ID
from transformer.errors import UserError
from transformer.inference.hypotheses import Translation
from transformer.inference.segments import (
    Segmenter,
    halve,
    join,
    measure_lines,
    source_language,
    split_sentences,
)

MAX_LENGTH = 20
TEXTS = (
    "我们今天去公园散步然后回家吃饭。天气很好！你也来吗？我们在那里等你然后一起去看电影好不好",
    "no punctuation at all in a line that goes on and on and on and on and on for ever and ever",
    'Dr. Smith met Mr. J. R. Jones at 3.30 p.m., i.e. late. They left!! Why? "So." he said.',
    "x" * 10_000,
    "😀👩‍👩‍👧‍👧🏳️‍🌈" * 40,
    "e\u0301" * 100,
    "שלום עולם, מה שלומך היום? טוב מאוד. תודה רבה לך על הכול",
    "مرحبا بكم جميعا في بيتنا. كيف حالكم اليوم؟ نحن بخير، والحمد لله على كل حال",
    "यह एक बहुत लंबा वाक्य है। यह दूसरा है। यह तीसरा वाक्य भी काफी लंबा है",
    "1. One thing. 2. Another\u00a0! 3. A\u00a0. Third, with a clause, and one more, and so on.",
    "... !!! ??? ... !!! ??? ... !!! ??? ... !!!",
    "A\u2028b\x0cc\x85d. E\tf.\u3000G。H",
)


def words(texts):
    return [[1] * len(text.split()) for text in texts]


def characters(texts):
    return [[1] * len("".join(text.split())) for text in texts]


def segmenter(tmp_path, encode=words, split="auto", trained=("One sentence.",), data=(), most=12):
    """A segmenter of a run that was trained on these sources, of `most` tokens at most."""
    config = base.get_config()
    config.decode.split_sentences = split
    config.data.max_tokens = most
    config.data.corpora = data
    if trained:
        ids = {word: number for number, word in enumerate(" ".join(trained).split())}
        texts = {number: word for word, number in ids.items()}
        encoded = [[ids[word] for word in text.split()] for text in trained]
        lines = measure_lines(encoded, lambda own: " ".join(texts[number] for number in own), "")
        (tmp_path / "run.json").write_text(json.dumps({"data": {"source_lines": lines}}))
    return Segmenter(config, tmp_path, encode, MAX_LENGTH)


def bare(text):
    return "".join(text.split())


# -- nothing is lost


@pytest.mark.parametrize("split", ["auto", "always", "never"])
@pytest.mark.parametrize("encode", [words, characters])
def test_every_segment_fits_and_no_character_is_lost(encode, split, tmp_path):
    segments = segmenter(tmp_path, encode, split, trained=())
    fits = []
    for text in TEXTS:
        parts = segments(text, 1)
        assert bare("".join(parts)) == bare(text)
        fits.append(max(map(len, encode(parts))) < MAX_LENGTH)
    assert all(fits) == (split != "never")  # never is the control


def test_a_cut_is_not_within_a_joined_emoji_or_an_accented_letter():
    for unit in ("👩‍👩‍👧‍👧", "e\u0301", "👍🏽"):
        parts = halve(unit * 50, lambda part: len(part) <= 24)
        assert len(parts) > 4
        assert all(re.fullmatch(f"({unit})+", part) for part in parts)


# -- which segments


def test_a_line_that_need_not_be_split_is_the_same_line(tmp_path):
    segments = segmenter(tmp_path)
    for line in ("", "  ", "\u200b", "One.", " one  two ", " ".join("a" * 19), "A, b; c: d"):
        assert segments(line, 1) == [line]
    assert len(segments(" ".join("a" * 20), 1)) > 1  # the control


def test_segments_have_as_many_sentences_and_tokens_as_training_lines(tmp_path):
    line = "Al came. Bo went. Cy stayed. All did so much more than all of the rest. Bye."
    groups = [
        "Al came. Bo went.",
        "Cy stayed.",
        "All did so much more than all of the rest. Bye.",
    ]
    several = ["Hi. Go."] * 2 + ["One two three four five six seven eight nine ten eleven."]
    assert segmenter(tmp_path, trained=several)(line, 1) == groups
    assert segmenter(tmp_path, trained=several)("Hi. Go.", 1) == ["Hi. Go."]
    always = segmenter(tmp_path, split="always", trained=several)
    assert len(always(line, 1)) == 5
    assert always("Hi. Go.", 1) == ["Hi.", "Go."]


@pytest.mark.parametrize(("count", "parts"), [(3, 4), (9, 4), (10, 1)])
def test_sentences_stay_together_only_if_a_tenth_of_the_training_lines_have_several(
    tmp_path, count, parts
):
    trained = ["What a long line this one of ten words is."] * (100 - count) + [
        "Hi. I am. Go. Bye."
    ] * count
    line = "Who are you? What is this? Wait! I am."
    assert len(segmenter(tmp_path, trained=trained)(line, 1)) == parts


def test_an_unknown_token_ends_no_sentence_of_the_training_lines():
    spelt = {UNK_ID: " ⁇ ", 5: "Ein", 6: "Hund läuft."}

    def decode(ids):
        return " ".join(spelt[token] for token in ids)

    assert len(split_sentences(decode([5, UNK_ID, 6]), "de")) == 2  # the control
    lines = measure_lines([[5, UNK_ID, 6]] * 3, decode, "de")
    assert lines == {"several_sentences": 0, "sentences": 1, "tokens": 4, "words": {}}


def test_each_segment_has_the_tag_of_its_line(tmp_path):
    data = ({"name": "a", "source_tag": "<2de>"}, {"name": "b", "source_tag": "<2en> <news>"})
    segments = segmenter(tmp_path, data=data, trained=["<2de> One.", "<2en> <news> Two."])
    assert segments("<2en>  <news> An apple. Two pears.", 1) == [
        "<2en> <news> An apple.",
        "<2en> <news> Two pears.",
    ]
    long = segments("<2de> " + "a b, " * 12, 1)
    assert len(long) > 2
    assert all(part.startswith("<2de> a b,") for part in long)


def test_a_sentence_that_is_too_long_is_cut_at_clauses_and_named(tmp_path, caplog):
    text = "If one comes late to it, one waits outside; then when it ends (at noon), one goes"
    segments = segmenter(tmp_path, trained=())
    assert segments(f"Short. {text} now or never.", 7) == [
        "Short.",
        "If one comes late to it, one waits outside;",
        "then when it ends (at noon), one goes now or never.",
    ]
    [record] = caplog.records
    assert record.message == (
        "line 7 has a sentence of more than 19 tokens, translated in parts (model.max_length=20)"
    )


TWO_FILES = {"data.source": "files", "data.train_target": "train.en"}
ROWS = {"data.source": "files", "data.train_target": ""}


@pytest.mark.parametrize(
    ("changes", "language", "target"),
    [
        ({}, "en", "de"),  # of the grammar
        ({"data.source": "numbers"}, "", ""),
        ({**TWO_FILES, "data.train_source": "news/train.de"}, "de", "en"),
        ({**ROWS, "data.source_field": "a.ru", "data.target_field": "a.en"}, "ru", "en"),
        ({**TWO_FILES, "data.languages": ("es", "")}, "es", "en"),
        ({"data.source": "tfds", "data.tfds_fields": ("ru", "en")}, "ru", "en"),
        ({"data.languages": ("es", "en"), "decode.source_language": "it"}, "it", "en"),
    ],
)
def test_the_languages_are_what_the_config_says(changes, language, target):
    config = base.get_config()
    config.update_from_flattened_dict(changes)
    assert source_language(config.decode, config.data) == language
    if not config.decode.source_language:
        assert languages_of(config.data) == (language, target)
    config.decode.source_language = "German"
    with pytest.raises(UserError, match="source_language=German is not a code"):
        source_language(config.decode, config.data)


# -- joined


def test_the_best_translations_of_a_line_are_the_best_sums_of_its_segments():
    parts = [
        [Translation("a", -1.0, 2), Translation("b", -1.5, 3)],
        [Translation("c", -2.0, 4), Translation("d", -2.25, 1)],
        [Translation("", 0.0, 0)],
    ]
    expected = [Translation("a c", -3.0, 6), Translation("a d", -3.25, 3), ("b c", -3.5, 7, 0)]
    assert join(parts, 3) == expected
    assert join(parts, 1) == expected[:1]
    assert join(parts[:1], 2) == parts[0]


@pytest.mark.parametrize(
    ("texts", "joined"),
    [
        (["Tom游泳.", "我去!", "OK.", "Tom!"], "Tom游泳.我去! OK. Tom!"),
        (["私はTomです。", "Tomは学生。"], "私はTomです。Tomは学生。"),
        (["I live in 北京.", "He left."], "I live in 北京. He left."),
        (["ฉันไป", "เขามา"], "ฉันไป เขามา"),  # as Thai separates sentences
        (["你好。", "我去！", "Good.", "", "Bye."], "你好。我去！Good. Bye."),
        (["그는 어제 공부했습니다", "그리고 갔다"], "그는 어제 공부했습니다 그리고 갔다"),
    ],
)
def test_a_blank_stands_between_sentences_by_the_script_of_the_translation(texts, joined):
    [found] = join([[Translation(text, 0.0, 1)] for text in texts], 1)
    assert found.text == joined


def test_a_line_with_fewer_degenerate_segments_is_better_whatever_the_scores():
    loop, end = Translation("a a a", -1.0, 4, 1), Translation("a", -5.0, 2)
    best = join([[loop], [end, loop]], 2)
    assert best == [("a a a a", -6.0, 6, 1), ("a a a a a a", -2.0, 8, 2)]
    assert join([[loop], [end]], 1) == best[:1]


def test_a_line_has_each_translation_once():
    parts = [[Translation("a b", -1.0, 2), Translation("a", -1.5, 1)]]
    parts.append([Translation("c", -1.0, 1), Translation("b c", -1.25, 2)])
    assert [found.text for found in join(parts, 4)] == ["a b c", "a b b c", "a c"]
