"""A page divides a text where the command does, and joins the translations as it does."""

import random

import pytest

from offline import run_script
from places import ROOT
from transformer.inference.hypotheses import Translation
from transformer.inference.segments import halve, join, segment_rules, split_sentences

pytestmark = pytest.mark.full  # they start node
LINES = [
    line.split(" ", 1)
    for name in ("lines", "held_back")
    for line in (ROOT / f"tests/tasks/sentences/{name}.txt").read_text("utf-8").splitlines()
]
DIVIDE = """
const read = Object.fromEntries(
  Object.entries(rules).map(([language, spec]) => [language, readRules(spec)]));
return lines.map(([language, text]) => splitSentences(text, read[language]));
"""
SHAPE = """
const read = readRules(rules);
return [
  texts.map((text) => halve(text, (part) => Array.from(part).length <= 24, read)),
  lists.map((texts) => {
    const parts = texts.map((best) => best.map((text, i) => ({ text, score: -i, degenerate: 0 })));
    return join(parts, 3, read).map(({ text }) => text);
  }),
];
"""
TEXTS = (
    "我们今天去公园散步然后回家吃饭，天气很好，你也来吗，我们在那里等你然后一起去看电影好不好",
    "no punctuation at all in a line that goes on and on and on, and on and on for ever and ever",
    *(
        "x" * 99,
        "😀👩‍👩‍👧‍👧🏳️‍🌈" * 20,
        "e\u0301" * 50,
        "מרחבא بكم جميعا في بيتنا؛ نحن بخير، والحمد لله",
    ),
    "If one comes late, one waits outside; then 😀 when it ends (at noon), one goes",
)
LISTS = (
    *([["Tom游泳."], ["我去!"], ["OK."], ["Tom!"]], [["I live in 北京."], ["He left."]]),
    *(
        [["a", "b"], ["c", "d"], [""]],
        [["「はい」"], ["\n\n  "], ["そう"]],
        [["a"], [" \n"], ["b"]],
    ),
    [["I love it 😍"], ["Thanks"]],
)


def test_a_page_divides_281_lines_of_53_languages_as_the_command_does(tmp_path):
    texts = [(language, text.replace("|", "")) for language, text in LINES]
    texts += [("", text) for _, text in texts]  # an unknown language
    draw, characters = random.Random(5), "".join(text for _, text in texts) + "\n\t\u200d\u0301\xa0"
    texts += [(language, "".join(draw.choices(characters, k=40))) for language, _ in LINES]
    rules = {language: segment_rules(language, {"Jl": True, "trg": False}) for language, _ in texts}
    answers = run_script(tmp_path, DIVIDE, rules=rules, lines=texts)
    words = {"Jl": True, "trg": False}
    ours = [split_sentences(text, language, words) for language, text in texts]
    assert answers == ours
    assert sum(len(parts) > 1 for parts in ours) > 400  # the control


def test_a_page_halves_and_joins_as_the_command_does(tmp_path):
    halves, joined = run_script(
        tmp_path, SHAPE, rules=segment_rules("", {}), texts=TEXTS, lists=LISTS
    )
    assert halves == [halve(text, lambda part: len(part) <= 24) for text in TEXTS]
    ours = [
        join([[Translation(text, -i, 0) for i, text in enumerate(best)] for best in texts], 3)
        for texts in LISTS
    ]
    assert joined == [[each.text for each in best] for best in ours]
