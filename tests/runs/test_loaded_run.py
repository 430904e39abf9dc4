"""Trained runs in Python: their texts, attention, embeddings, settings and refusals."""

import subprocess
import sys

import numpy as np
import pytest

import transformer
from experiments.command import command as commands
from experiments.process.config import read_experiment
from places import ROOT
from source_settings import refused
from task_runs import SHORT
from transformer.config import assign
from transformer.errors import UserError


@pytest.fixture
def translator(loaded):
    return loaded["translation"]


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


def test_settings_replace_those_of_the_run(translator):
    greedy = transformer.load(str(translator.folder), {"decode.beam_size": 1, "decode.alpha": 1})
    assert (greedy.config.decode.beam_size, greedy.config.decode.alpha) == (1, 1.0)
    assert greedy.trained.predictor.decode.beam_size == 1
    assert translator.trained.predictor.decode.beam_size == 4  # the control


def test_attention_has_every_head_with_the_names_of_its_rows_and_columns(loaded):
    seen = loaded["translation"].attention("a b c", "c d")
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
    [own] = loaded["translation"].translate(["a b c"])
    same = loaded["translation"].attention("a b c", own)
    np.testing.assert_array_equal(
        loaded["translation"].attention("a b c").weights["cross"], same.weights["cross"]
    )
    assert list(loaded["language_model"].attention("one red").weights) == ["decoder_self"]
    assert list(loaded["classification"].attention("the plot").weights) == ["encoder_self"]


def test_embeddings_are_tables_with_a_token_for_each_row(loaded):
    for run in loaded.values():
        for tokens, vectors in run.embeddings.values():
            assert vectors.shape == (len(tokens), 16)
    tokens = loaded["translation"].embeddings
    assert "▁a" in next(iter(tokens.values())).tokens


MISTAKES = {
    "translation.classify": (["a"], "which has translate, score, evaluate, next_tokens, "),
    "classification.score": (["a"], "score is for config.task=translation or language_model: "),
    "translation.translate": ("a b", "'a b' is a single text: give a list of texts"),
    "translation.score": (["a"], "needs targets"),
    "language_model.generate": (iter(["one", float("nan")]), "text 2 is nan, of type float"),
    "translation.attention": ("\u200b", "the text is blank"),
}


@pytest.mark.parametrize("call", MISTAKES)
def test_a_mistake_is_answered_by_one_line(loaded, call):
    task, _, method = call.partition(".")
    texts, says = MISTAKES[call]
    with refused(says):
        getattr(loaded[task], method)(texts)


def test_a_blank_text_is_refused(translator):
    """An empty reference would count as one that every translation misses."""
    with pytest.raises(UserError, match=r"^text 2 is blank: "):
        translator.evaluate(["a", "b"], ["a", " "])
    assert translator.evaluate(["a", "b"], ["a", "b"])["sentences"] == 2  # the control


def test_further_arguments_are_checked(loaded):
    with pytest.raises(UserError, match="2 sources and 1 targets"):
        loaded["translation"].score(["a", "b"], ["a"])
    with pytest.raises(UserError, match="no targets"):
        loaded["language_model"].score(["one"], ["two"])
    with pytest.raises(UserError, match="no target"):
        loaded["classification"].attention("the plot", "x")
    with pytest.raises(UserError, match=r"^num_best=9 .*beam_size=4"):
        loaded["translation"].translate(["a"], num_best=9)
    for run in loaded.values():
        with pytest.raises(UserError, match="leave it out"):
            run.attention("one", source_tag="<2de>")
    with pytest.raises(UserError, match=r"did you mean config\.decode\.beam_size"):
        transformer.load(loaded["translation"].folder, {"beam_size": 2})
    with pytest.raises(UserError, match=r"sets keys of decode and evaluate, .*not model\.d_ff=7"):
        transformer.load(loaded["translation"].folder, {"model.d_ff": 7})


# -- training


def test_training_from_python_resumes_and_takes_a_config_or_its_file(loaded, tmp_path, capsys):
    run = loaded["language_model"]
    file = run.folder.parent / "config.py"
    config = read_experiment(str(file)).config
    for key, value in SHORT.items():
        assign(config, key, value)
    capsys.readouterr()
    again = transformer.train(config, run.folder)
    assert "is finished, 20 steps" in capsys.readouterr().out
    assert again.generate(["one"]) == run.generate(["one"])
    with pytest.raises(UserError, match=r"another config: .*d_ff"):
        transformer.train(file, run.folder, SHORT | {"model.d_ff": 7})
    with pytest.raises(UserError, match=r"is a sweep: .*on the command line"):
        transformer.train("configs/sweeps/heads.py", tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


def test_a_training_that_is_stopped_is_an_interrupt(loaded, tmp_path, monkeypatch):
    monkeypatch.setattr(commands, "run_command", lambda command: 130)
    with pytest.raises(KeyboardInterrupt, match="the same call resumes it"):
        transformer.train("configs/quickstart.py", tmp_path / "run")


# -- the package


def test_the_import_is_light_and_names_are_checked():
    script = (
        "import sys, transformer\n"
        "print(transformer.__version__, 'jax' in sys.modules)\n"
        "print(transformer.load.__name__, 'jax' in sys.modules)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    version = transformer.__version__
    assert ended.stdout == f"{version} False\nload True\n"  # the other is a control
    with pytest.raises(AttributeError, match="has no attribute 'tarin'"):
        transformer.tarin  # noqa: B018
