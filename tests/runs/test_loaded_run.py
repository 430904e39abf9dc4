"""Trained runs in Python: what their methods return is what the modes write."""

import re
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest

import experiments
import transformer
from experiments.command import command as commands
from experiments.process.config import read_experiment
from places import ROOT
from task_runs import SHORT, train_runs
from tiny_run import command
from transformer.config import assign
from transformer.errors import UserError

SENTENCES = ["a b c", "", "b a", "d e f g h"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of each task."""
    folders = train_runs(tmp_path_factory)
    return {task: transformer.load(folder) for task, folder in folders.items()}


@pytest.fixture(scope="module")
def translator(runs):
    return runs["translation"]


def answer(run, mode: str, lines: Sequence[str], *flags: str) -> list[str]:
    """The lines that a mode writes for these lines."""
    text = "".join(f"{line}\n" for line in lines).encode()
    ended = command(f"--workdir={run.folder}", f"--mode={mode}", *flags, stdin=text)
    assert ended.code == 0, ended.err
    return ended.out.splitlines()


def test_translations_are_those_of_the_mode(translator):
    found = translator.translate(iter(SENTENCES))
    assert found == answer(translator, "translate", SENTENCES)
    assert found[1] == ""
    assert translator.translate([]) == []
    best = translator.translate(SENTENCES, num_best=3)
    assert [each[0].text for each in best] == found
    assert list(map(len, best)) == [3, 1, 3, 3]
    told = answer(translator, "translate", SENTENCES, "--config.decode.num_best=3")
    flat = [(number, each) for number, own in enumerate(best, 1) for each in own]
    assert told == [f"{number}\t{each.score:.4f}\t{each.text}" for number, each in flat]


def test_a_text_comes_back_with_its_lines(translator):
    one, two, three, four = found = translator.translate(["a b c.", "d e!", "b a. C d.", "d e f"])
    assert all(found)
    text = "  a b c.\r\n\r\n\td e! \n- \u2028b a. C d.\n\n"
    [dash] = translator.translate(["-"])
    [best, blank, line] = translator.translate([text, "\n\n", "d e f\n"])
    assert best == f"  {one}\r\n\r\n\t{two} \n{dash} \u2028{three}\n\n"
    assert (blank, line) == ("", four)  # as of a line of a file
    whole = transformer.load(translator.folder, {"decode.split_sentences": "never"})
    assert whole.translate(["a b c\nd e f"]) == ["\n".join(whole.translate(["a b c", "d e f"]))]


def test_lines_have_the_sums_of_scores_and_their_best_combinations(translator):
    lines = translator.translate(["a b c", "d e f g h"], num_best=3)
    best = translator.translate(["a b c\n d e f g h"], num_best=3)[0]
    sums = [(f"{a.text}\n {b.text}", a.score + b.score) for a in lines[0] for b in lines[1]]
    sums.sort(key=lambda each: -each[1])
    assert [(each.text, each.score) for each in best] == sums[:3]
    assert best[0].tokens == lines[0][0].tokens + lines[1][0].tokens


def test_settings_replace_those_of_the_run(translator):
    greedy = transformer.load(str(translator.folder), {"decode.beam_size": 1, "decode.alpha": 1})
    assert (greedy.config.decode.beam_size, greedy.config.decode.alpha) == (1, 1.0)
    assert greedy.trained.predictor.decode.beam_size == 1
    assert translator.trained.predictor.decode.beam_size == 4  # the control


def test_scores_are_those_of_the_mode(runs):
    pairs = [("a b", "b a"), ("c d e", "e")]
    found = runs["translation"].score(*map(list, zip(*pairs, strict=True)))
    told = answer(runs["translation"], "score", ["\t".join(pair) for pair in pairs])
    assert [f"{each.log_prob:.4f}\t{each.tokens}" for each in found] == told
    assert [each.tokens for each in found] == [3, 2]  # with their ends
    lines = ["one red cat", "two blue"]
    found = runs["language_model"].score(lines)
    told = answer(runs["language_model"], "score", lines)
    assert [f"{each.log_prob:.4f}\t{each.tokens}" for each in found] == told


def test_texts_of_a_language_model_are_those_of_the_mode(runs):
    run, prompts = runs["language_model"], ["one", "two blue"]
    found = run.generate(prompts)
    assert found == answer(run, "generate", prompts)
    assert [text[: len(prompt)] for text, prompt in zip(found, prompts, strict=True)] == prompts
    several = run.generate(prompts, num_best=2)
    assert [[len(own), own[0].text, own[0].score] for own in several] == [
        [2, text, None] for text in found
    ]
    other = transformer.load(run.folder, {"decode.seed": 5, "decode.max_new_tokens": 3})
    assert other.generate(prompts) != found


def test_classes_are_those_of_the_mode(runs):
    run = runs["classification"]
    texts = ["the plot is superb .", "", "the cast is dull !"]
    found = run.classify(texts)
    assert found == [line.split("\t")[0] for line in answer(run, "classify", texts)]
    best = run.classify(texts, num_best=2)
    assert list(map(len, best)) == [2, 0, 2]
    assert best[0][0].probability + best[0][1].probability == pytest.approx(1)
    assert [own[0].label for own in best if own] == [found[0], found[2]]


def test_attention_has_every_head_with_the_names_of_its_rows_and_columns(runs):
    seen = runs["translation"].attention("a b c", "c d")
    shapes = {kind: weights.shape for kind, weights in seen.weights.items()}
    assert shapes == {
        "encoder_self": (1, 2, 4, 4),
        "decoder_self": (1, 2, 3, 3),
        "cross": (1, 2, 3, 4),
    }
    read = ["▁a", "▁b", "▁c", "</s>"]
    assert [list(side) for side in seen.names("cross")] == [["▁c", "▁d", "</s>"], read]
    assert [list(side) for side in seen.names("encoder_self")] == [read, read]
    for weights in seen.weights.values():
        np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-5)
    assert repr(seen).startswith("Attention(")
    assert "cross [1, 2, 3, 4]" in repr(seen)
    [own] = runs["translation"].translate(["a b c"])
    same = runs["translation"].attention("a b c", own)
    np.testing.assert_array_equal(
        runs["translation"].attention("a b c").weights["cross"], same.weights["cross"]
    )
    assert list(runs["language_model"].attention("one red").weights) == ["decoder_self"]
    assert list(runs["classification"].attention("the plot").weights) == ["encoder_self"]


def test_embeddings_are_tables_with_a_token_for_each_row(runs):
    for run in runs.values():
        for tokens, vectors in run.embeddings.values():
            assert vectors.shape == (len(tokens), 16)
    tokens = runs["translation"].embeddings
    assert "▁a" in next(iter(tokens.values())).tokens


def test_a_run_says_what_it_is_and_has_its_scores(runs):
    for task, run in runs.items():
        assert re.fullmatch(rf"LoadedRun\('.*': {task}, weights of step \d+(, \d+)*\)", repr(run))
        assert run.results["validation"]["loss"] > 0


MISTAKES = {
    "language_model.translate": (["a"], "translate is for config.task=translation: "),
    "classification.generate": (["a"], "generate is for config.task=language_model: "),
    "translation.classify": (["a"], "which has translate, score, evaluate, attention, embeddings"),
    "classification.score": (["a"], "score is for config.task=translation or language_model: "),
    "translation.translate": ("a b", "'a b' is a single text: give a list of texts"),
    "translation.score": (["a"], "needs targets"),
    "classification.classify": (["the plot", "\ud800"], "has half a character"),
    "language_model.generate": (["one", float("nan")], "text 2 is nan, of type float"),
    "language_model.score": (["one zebra"], "line 1 has zebra: the vocabulary lacks"),
    "translation.attention": ("\u200b", "the text is blank"),
    "classification.attention": ("", "the text is blank"),
}


@pytest.mark.parametrize("call", MISTAKES)
def test_a_mistake_is_answered_by_one_line(runs, call):
    task, _, method = call.partition(".")
    texts, says = MISTAKES[call]
    with pytest.raises(UserError) as caught:
        getattr(runs[task], method)(texts)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ((["a", " "], ["a", "b"]), "text 2 is blank: "),
        ((["a", "b"], ["a", "b"], ["\t", "b"]), "text 1, its reference 2 is blank: "),
    ],
)
def test_a_blank_text_is_refused(translator, texts, says):
    """An empty reference would count as one that every translation misses."""
    with pytest.raises(UserError, match=f"^{says}"):
        translator.evaluate(*texts)
    assert translator.evaluate(["a", "b"], ["a", "b"])["sentences"] == 2  # the control


def test_further_arguments_are_checked(runs, tmp_path):
    with pytest.raises(UserError, match="2 sources and 1 targets"):
        runs["translation"].score(["a", "b"], ["a"])
    with pytest.raises(UserError, match="no targets"):
        runs["language_model"].score(["one"], ["two"])
    with pytest.raises(UserError, match="no target"):
        runs["classification"].attention("the plot", "x")
    with pytest.raises(UserError, match=r"^num_best=9 .*beam_size=4"):
        runs["translation"].translate(["a"], num_best=9)
    with pytest.raises(UserError, match=r"^num_best=0 .*from 1"):
        runs["classification"].classify(["a"], num_best=0)
    with pytest.raises(UserError, match="leave it out"):
        runs["translation"].translate(["a"], source_tag="<2de>")
    with pytest.raises(UserError, match="leave it out"):
        runs["language_model"].score(["one"], source_tag="<2de>")
    for run in runs.values():
        with pytest.raises(UserError, match="leave it out"):
            run.attention("one", source_tag="<2de>")
    with pytest.raises(UserError, match=r"did you mean config\.decode\.beam_size"):
        transformer.load(runs["translation"].folder, {"beam_size": 2})
    with pytest.raises(UserError, match=r"'config\.decode\.seed': write 'decode\.seed'$"):
        transformer.load(runs["translation"].folder, {"config.decode.seed": 2})
    with pytest.raises(
        UserError,
        match=r"sets keys of decode and evaluate .*not model\.d_ff=7: .*experiments\.train",
    ):
        transformer.load(runs["translation"].folder, {"model.d_ff": 7})
    with pytest.raises(UserError, match="has no run"):
        transformer.load(tmp_path)


# -- training


def test_training_from_python_resumes_and_takes_a_config_or_its_file(runs, tmp_path, capsys):
    run = runs["language_model"]
    file = run.folder.parent / "config.py"
    config = read_experiment(str(file)).config
    for key, value in SHORT.items():
        assign(config, key, value)
    capsys.readouterr()
    again = experiments.train(config, run.folder)
    assert "is finished, 20 steps" in capsys.readouterr().out
    assert again.generate(["one"]) == run.generate(["one"])
    with pytest.raises(UserError, match=r"another config: .*d_ff"):
        experiments.train(file, run.folder, SHORT | {"model.d_ff": 7})
    with pytest.raises(UserError, match=r"is a sweep: .*on the command line"):
        experiments.train("configs/sweeps/heads.py", tmp_path / "sweep")
    with pytest.raises(UserError, match=r"^the config nowhere\.py is not a file"):
        experiments.train("nowhere.py", tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


def test_a_training_that_is_stopped_is_an_interrupt(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(commands, "run", lambda command: 130)
    with pytest.raises(KeyboardInterrupt, match="the same call resumes it"):
        experiments.train("configs/quickstart.py", tmp_path / "run")


# -- the package


def test_the_import_is_light_and_names_are_checked():
    script = (
        "import sys, transformer, experiments\n"
        "print(transformer.__version__, 'jax' in sys.modules)\n"
        "print(transformer.load.__name__, experiments.train.__name__, 'jax' in sys.modules)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    version = transformer.__version__
    assert ended.stdout == f"{version} False\nload train True\n"  # the other is a control
    for module in (transformer, experiments):
        with pytest.raises(AttributeError, match="has no attribute 'tarin'"):
            module.tarin  # noqa: B018
