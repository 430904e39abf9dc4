"""Long lines are translated by sentences or in parts, joined in their order, or cut and named."""

import json

import pytest

from transformer.inference.segments import measure_lines
from transformer.runs.workdir import load_config
from transformer.tasks.translation import TranslationTask


def test_unsplit_lines_past_the_limit_are_translated_as_far_as_it_goes_and_named(translate):
    long = "a b c d " * 25_000
    text = f"a\n{long}\n{'x' * 100_000}\n" + "a b c d " * 10
    ended = translate(text, "--config.decode.split_sentences=never")
    assert ended.code == 0
    assert len(ended.out.splitlines()) == 4
    warnings = ended.err.splitlines()
    assert len(warnings) == 2
    assert warnings[0].startswith("line 2 has 100000 tokens: only the first 31 are read")
    assert warnings[1].startswith("line 4 has 40 tokens")
    assert "model.max_length=32" in warnings[0]
    assert ended.out.splitlines()[1] == ended.out.splitlines()[3]  # both begin the same


def test_a_line_of_several_sentences_is_the_translations_of_each_in_their_order(translate):
    sentences = [
        "a b c d e f!",
        "A i g i a g!",
        "A b c d e f g?",
        "a b c",
        "d e f g g?",
        "A g g g i i.",
    ]
    first, last = " ".join(sentences[:3]), " ".join(sentences[4:])
    ended = translate(f"{first}\n\n{sentences[3]}\n \n{last}\n")
    assert (ended.code, ended.err) == (0, "")
    alone = translate("\n".join(sentences)).out.splitlines()
    assert all(alone)
    joined = " ".join(alone[:3])
    assert ended.out.splitlines() == [joined, "", alone[3], "", " ".join(alone[4:])]
    cut = translate(f"{first}\n", "--config.decode.split_sentences=never")
    assert cut.out != f"{joined}\n"  # the control


def test_several_translations_of_a_split_line_are_sorted_by_the_sum_of_their_scores(translate):
    def rows(text):
        out = translate(text, "--config.decode.num_best=2").out
        return [line.split("\t") for line in out.splitlines()]

    left, right = rows("a b c d e f!\nA i g i a g.\n")[::2]
    assert all((left[2], right[2]))
    found = rows("a\na b c d e f! A i g i a g.\n")[2:]
    assert [row[0] for row in found] == ["2", "2"]
    assert found[0][2] == f"{left[2]} {right[2]}"
    scores = [float(row[1]) for row in found]
    assert scores[0] == pytest.approx(float(left[1]) + float(right[1]), abs=1.1e-4)
    assert scores == sorted(scores, reverse=True)


def test_a_sentence_past_the_limit_is_translated_in_parts_and_named(translate):
    half = "a b c d " * 10
    ended = translate(f"a\n{half}, {half}\n{half * 3}\n")
    warnings = ended.err.splitlines()
    assert [line.split(" (")[0] for line in warnings] == [
        f"line {number} has a sentence of more than 31 tokens, translated in parts"
        for number in (2, 3)
    ]
    assert all("model.max_length=32" in line for line in warnings)
    assert len(ended.out.splitlines()) == 3


def test_a_run_keeps_how_long_its_training_sources_are(tiny, loaded):
    task = TranslationTask(load_config(tiny.workdir), folder=tiny.workdir)
    sources = [pair.source for pair in task.text.pairs["train"]]
    tokenizer = loaded[0].source_tokenizer
    kept = json.loads((tiny.workdir / "run.json").read_text())["data"]["source_lines"]
    assert kept == measure_lines(tokenizer.encode(sources), tokenizer.decode, "")
