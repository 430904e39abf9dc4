"""Long lines are translated by sentences or in parts, joined in their order, or cut and named."""

import json

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


def test_a_run_keeps_how_long_its_training_sources_are(tiny, loaded):
    task = TranslationTask(load_config(tiny.workdir), folder=tiny.workdir)
    sources = [pair.source for pair in task.text.pairs["train"]]
    tokenizer = loaded[0].source_tokenizer
    kept = json.loads((tiny.workdir / "run.json").read_text())["data"]["source_lines"]
    assert kept == measure_lines(tokenizer.encode(sources), tokenizer.decode, "")
