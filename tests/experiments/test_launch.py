"""The command line: whatever a user gets wrong ends in one line that names it, and code 2."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from configs import base
from experiments import process
from experiments.config import override, read_experiment
from places import ROOT
from tiny_run import command, refused, shared_run
from transformer.config import RANGES, check
from transformer.errors import UserError
from transformer.keys import flatten

CONFIGS = sorted(path for path in (ROOT / "configs").glob("*.py") if path.stem != "__init__")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return shared_run(tmp_path_factory)


@pytest.fixture
def refuse(tiny, tmp_path):
    """Checks that training with these arguments is refused before the workdir is touched."""

    def check(*arguments, says):
        workdir = tmp_path / "workdir"
        refused(f"--config={tiny.config}", f"--workdir={workdir}", *arguments, says=says)
        assert not workdir.exists()

    return check


# -- flags and keys


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--config=x.py"], "--workdir is missing"),
        (["--config=x.py", "--workdir="], "--workdir is empty: name the folder of the run"),
        (["--config=x.py", "--workdir=", "--mode=plan"], "--workdir is empty"),
        (["--workdir=~nobody_here/x", "--mode=report"], "begins with ~, and there is no such home"),
        (["--workdir=x"], ("--config is missing", "configs/quickstart.py")),
        (["--config=x.py", "--wrkdir=x"], ("wrkdir", "workdir")),
        (["--config=x.py", "--workdir=x", "--mode=trian"], ("trian", "train", "translate")),
        (["--config=x.py", "--workdir=x", "again"], ("'again'", "--name=value")),
        (["--workdir=x", "--config.seed"], ("--config.seed", "=value")),
        (["--workdir=x", "--sentence=\udcff"], (r"'--sentence=\udcff'", "is not UTF-8")),
        (["--workdir=x", "--config=x.py", "--layer=1"], "--layer is for --mode=attention, not for"),
        (["--workdir=x", "--mode=heads", "--output=y"], ("--output is for", "translate, score,")),
        (["--workdir=x", "--mode=attention", "--nohide_eos"], "x has no run"),  # a control
        (["--workdir=x", "--config=nowhere/x.py"], "nowhere/x.py is not a file"),
        (["--workdir=x", "--config=configs"], "configs is not a file"),
    ],
)
def test_a_wrong_flag_is_named_with_the_fix(arguments, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(*arguments, says=says)
    assert not list(tmp_path.iterdir())


def test_help_names_every_flag_and_mode():
    ended = command("--help")
    assert ended.code == 0
    for word in ("--config", "--workdir", "--mode", "--input", "--output", "attention"):
        assert word in ended.out


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("model.num_head=4", ("config.model.num_head:", "did you mean config.model.num_heads?")),
        ("num_heads=4", "did you mean config.model.num_heads?"),
        ("zzz=4", "configs/base.py lists all keys"),
        ("model.num_heads=four", ("'four'", "int")),
        ("model.num_heads=2.0", ("'2.0'", "int")),
        ("model.num_heads=", ("''", "int")),
        ("model.attention_bias=yes", ("'yes'", "bool")),
        ("sweep.trials=a,b", ("'a,b'", "int")),
        ("train.epochs=nan", ("config.train.epochs=nan", "from 0")),
        ("train.steps=0", ("config.train.steps=0", "from 1")),
        ("seed=-1", ("config.seed=-1", "from 0")),
        ("model.dropout_residual=1.5", ("1.5", "0.999999")),
        ("decode.num_best=5", ("num_best=5", "beam_size=4", "raise config.decode.beam_size")),
        ("model.num_heads=3", ("num_heads=3", "d_model=16", "1, 2, 4, 8, 16")),
        ("model.positions=sinus", ("'sinus'", "learned, none, relative_bias,")),
        ("model.architecture=rnn", ("'rnn'", "recurrent", "transformer")),
        ("model.cell=elman", ("'elman'", "gru, lstm, lstm_peephole, rnn")),
        ("model.recurrent_attention=dot", ("'dot'", "additive, multiplicative, none")),
        (
            "model.architecture=recurrent model.num_encoder_layers=0",
            ("num_encoder_layers=0", "config.model.num_encoder_layers"),
        ),
        ("model.activation=quux", ("'quux'", "gelu", "swiglu")),
        ("model.norm_position=mid", ("'mid'", "post, pre")),
        ("model.tied_embeddings=some", ("'some'", "all, decoder, none")),
        ("optimizer.schedule=noma", ("'noma'", "constant, cosine, inverse_sqrt, linear")),
        ("optimizer.epsilon=0", ("optimizer.epsilon=0.0", "from 1e-15 to 1")),
        ("optimizer.name=sgd", ("'sgd'", "adafactor, adam, adamw, lion, muon")),
        ("model.pooling=max", ("'max'", "attention, first, mean")),
        ("data.holdout=start", ("'start'", "end, hash")),
        ("sweep.search=tpes", ("'tpes'", "grid, random, tpe")),
        ("sweep.parallel=turns", ("'turns'", "auto, sequential, vmap")),
        ("decode.length_penalty=google", ("'google'", "average, gnmt, none")),
        ("data.source=file", ("'file'", "grammar, copy, reverse, files, tfds")),
        ("task=lm", ("'lm'", "translation")),
        ("tokenizer.kind=sp", ("'sp'", "bpe, unigram, word, char")),
        ("tokenizer.normalization=nfd", ("'nfd'", "nmt_nfkc")),
        ("evaluate.checkpoint=newest", ("'newest'", "best, last")),
        ("evaluate.sacrebleu_tokenizer=14a", ("'14a'", "13a, intl")),
        ("evaluate.moses=xx", ("'xx'", "de,", "en,")),
        ("train.best_metric=blue", ("'blue'", "bleu")),
        ("train.best_metric=ter", ("'ter'", "bleu")),
        ("train.best_metric=bleu_moses_lowercase", "set config.evaluate.moses"),
        ("data.test_size=0", ("test set is empty", "set config.data.test_size")),
        (
            "model.max_length=5 model.positions=learned",
            ("max_length=5", "raise config.model.max_length", "lower config.data.max_tokens"),
        ),
    ],
)
def test_a_wrong_key_or_value_is_named_before_anything_is_written(refuse, argument, says):
    refuse(*(f"--config.{part}" for part in argument.split()), says=says)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("num_heads=3", "num_heads=3"),
        ("activation=quux", "'quux'"),
        ("cell=elman", "'elman'"),
        ("encoder_positions=sinus", "'sinus'"),
        ("norm=batch", "'batch'"),
        ("architecture=bag_of_embeddings", "model.architecture=bag_of_embeddings"),
        ("num_heads=2", "/nowhere"),  # a control
    ],
)
def test_a_model_that_cannot_be_is_refused_before_the_text_is_read(refuse, model, says):
    text = ("--config.data.source=files", "--config.data.path=/nowhere")
    refuse(*text, f"--config.model.{model}", says=says)


def test_every_number_of_the_config_has_one_range():
    numbers = [
        key
        for key, value in flatten(base.get_config()).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    assert sorted(" ".join(keys for *_, keys in RANGES).split()) == sorted(numbers)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_config_that_comes_with_this_passes_the_check(path):
    check(read_experiment(str(path)).config)


def test_pages_of_configs_are_found_from_every_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read_experiment("configs/quickstart.py").config.name == "quickstart"
    assert read_experiment("configs/imdb.py:bigrams").config.model.bigram_buckets > 0
    assert read_experiment("configs/sweeps/heads.py").is_sweep
    for name in ("quickstart.py", "pages/quickstart.py", "configs/none.py"):
        with pytest.raises(UserError, match="is not a file: configs/ holds"):
            read_experiment(name)
    (tmp_path / "configs").mkdir()
    own = "from configs import own_text\nget_config = own_text.get_config\n"
    (tmp_path / "configs" / "quickstart.py").write_text(own)
    assert read_experiment("configs/quickstart.py").config.name == "own_text"


def test_an_override_has_the_type_of_its_key():
    config = base.get_config()
    for key, text in [
        ("model.num_heads", "4"),
        ("train.epochs", "3"),
        ("tokenizer.joint", "False"),
        ("data.source_field", "3"),
        ("data.tfds_fields", "('ru', en)"),
        ("data.path", "a=b"),
    ]:
        override(config, key, text)
    assert config.model.num_heads == 4
    assert (config.train.epochs, type(config.train.epochs)) == (3.0, float)
    assert config.tokenizer.joint is False
    assert config.data.source_field == "3"
    assert config.data.tfds_fields == ("ru", "en")
    assert config.data.path == "a=b"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def get_config(:\n", ("SyntaxError", "line 1")),
        ("def get_config():\n  return nope\n", ("NameError", "'nope'")),
        ("def get_config():\n  return 1 / 0\n", "ZeroDivisionError"),
        ("x = 1\n", "get_config"),
        ("from configs import bsae\n", "bsae"),
        ("def get_config():\n  return {}\n", ("dict", "return base.get_config()")),
        ("def get_config():\n  pass\n", ("NoneType", "return base.get_config()")),
        ("c.model.num_head = 4", ("num_head", 'Did you mean "num_heads"')),
        ("c.model.num_heads = 'four'", ("num_heads", "int")),
        ("c.unlock(); c.model.num_head = 4", "did you mean config.model.num_heads?"),
        ("c.model = 3", "model"),
    ],
)
def test_a_config_file_that_cannot_be_used_is_named_with_the_reason(tmp_path, text, says):
    if text.startswith("c."):
        lines = ["from configs import base", "def get_config():", "  c = base.get_config()"]
        text = "\n".join([*lines, f"  {text}", "  return c", ""])
    path = tmp_path / "mine.py"
    path.write_text(text)
    says = (says,) if isinstance(says, str) else says
    ended = refused(f"--config={path}", f"--workdir={tmp_path / 'w'}", says=(str(path), *says))
    assert len(ended.err.splitlines()) == 1
    assert "Other fields" not in ended.err
    assert not (tmp_path / "w").exists()


def test_a_wrong_flag_or_key_is_answered_before_jax_has_started(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from configs import base\ndef get_config():\n  c = base.get_config()\n  c.sed = 1\n"
    )
    script = (
        "import sys\nfrom experiments.command.main import main\n"
        "for flag in sys.argv[1:]:\n"
        "    code = main(['launch.py', '--workdir=x', *flag.split()])\n"
        "    print(code, 'jax' in sys.modules)\n"
    )
    wrong = ("--mode=trian", "--config.sed=1", "--config.seed=a", f"--config={tmp_path}/mine.py")
    ended = subprocess.run(
        [sys.executable, "-c", script, *wrong, "--mode=report --config=configs/quickstart.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert ended.stdout == "2 False\n" * 4 + "2 True\n"  # the other is a control


def test_what_takes_long_to_import_is_imported_where_it_is_needed():
    slow = "grain", "matplotlib", "optuna", "orbax", "sacrebleu", "sacremoses", "scipy"
    script = (
        "import sys, experiments.command.command, experiments.tasks.translation\n"
        f"print(*[name for name in {slow} if name in sys.modules])\n"
        "import experiments.sweeps.sweep, transformer.metrics.text\n"
        f"print(*[name for name in {slow} if name in sys.modules])\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ended.stdout == "\nmatplotlib optuna sacrebleu\n"  # the second line is a control


# -- text


@pytest.fixture
def texts(tmp_path):
    """Arguments that train on two good files of 40 lines."""
    for side, word in (("en", "cat"), ("de", "Katze")):
        lines = [f"{word} {chr(97 + i % 26)} {i}" for i in range(40)]
        (tmp_path / f"train.{side}").write_text("\n".join(lines) + "\n")
    return [
        "--config.data.source=files",
        f"--config.data.path={tmp_path}",
        "--config.data.validation_size=2",
        "--config.data.test_size=2",
        "--config.tokenizer.kind=bpe",
        "--config.tokenizer.vocab_size=60",
        "--config.data.max_oov_rate=0.5",
    ]


def without_line(path):
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))


@pytest.mark.parametrize(
    ("spoil", "arguments", "says"),
    [
        (Path.unlink, [], ("train.de", "train.en")),
        (without_line, [], ("train.en: 40", "train.de: 39")),
        (lambda path: path.write_bytes(b"a\n\xff\n" * 20), [], ("train.de, line 2", "UTF-8")),
        (lambda path: path.write_text(""), [], "train.de: 0"),
        (
            lambda path: path.write_text("\n" * 40),
            [],
            ("too few different", "config.data.test_size=2"),
        ),
        (
            None,
            ["data.max_characters=2"],
            ("too few different", "over config.data.max_characters"),
        ),
        (
            None,
            ["data.max_tokens=2"],
            ("no training text is left", "over config.data.max_tokens"),
        ),
        (
            None,
            ["tokenizer.vocab_size=9999"],
            ("tokenizer.vocab_size=9999", "at most", "set config.tokenizer"),
        ),
        (None, ["tokenizer.vocab_size=10"], ("tokenizer.vocab_size=10", "or more")),
        (
            None,
            ["tokenizer.kind=word", "tokenizer.vocab_size=7", "data.max_oov_rate=0.01"],
            (
                "tokens are unknown",
                "data.max_oov_rate=1.0%",
                "raise config.tokenizer.vocab_size",
            ),
        ),
        (
            None,
            ["tokenizer.joint=False"],
            ("tied_embeddings='all'", "set config.tokenizer.joint=True"),
        ),
        (None, ["data.train_source=nope"], ("data.train_source='nope'", "no file")),
        (None, ["data.path=/nowhere"], ("/nowhere", "check config.data.path")),
    ],
)
def test_text_that_cannot_be_trained_on_is_refused_before_anything_is_written(
    refuse, texts, tmp_path, spoil, arguments, says
):
    if spoil:
        spoil(tmp_path / "train.de")
    refuse(*texts, *(f"--config.{argument}" for argument in arguments), says=says)


@pytest.fixture
def begin(tiny, tmp_path, monkeypatch):
    """Starts a training with these arguments that ends where its first step would be."""

    def reached(trainer):
        raise UserError("training has begun")

    monkeypatch.setattr("transformer.train.Trainer.run", reached)

    def train(*arguments):
        workdir = f"--workdir={tmp_path / f'workdir_{len(arguments)}'}"
        return refused(f"--config={tiny.config}", workdir, *arguments, says="training has begun")

    return train


def test_good_text_passes_all_checks_up_to_the_training(begin, texts):
    # The control of the tests above: nothing but what they spoil is wrong.
    begin(*texts)
    begin(*texts, "--config.tokenizer.joint=False", "--config.model.tied_embeddings=decoder")


def test_pairs_that_were_held_out_are_counted_beside_those_kept(begin, texts, tmp_path):
    kept = "kept 36 of 36 sentence pairs"
    assert f"{kept}; held out before: 2 for validation, 2 for test\n" in begin(*texts).out
    for side in ("en", "de"):
        (tmp_path / f"test.{side}").write_text("a\n")
    files = ["--config.data.test_source=test.en", "--config.data.test_target=test.de"]
    ended = begin(*texts, *files)
    assert "kept 38 of 38 sentence pairs; held out before: 2 for validation\n" in ended.out
    assert "kept 200 of 200 sentence pairs\n" in begin().out  # of a synthetic corpus


# -- the folder


def test_a_workdir_that_is_a_file_or_lies_below_one_is_refused(tiny, tmp_path):
    path = tmp_path / "file"
    path.write_text("mine")
    refused(f"--config={tiny.config}", f"--workdir={path}", says=(str(path), "is a file"))
    refused(f"--config={tiny.config}", f"--workdir={path}/run", says=(str(path), "check the path"))
    assert path.read_text() == "mine"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder nobody can write to")
def test_a_workdir_that_cannot_be_written_is_refused(tiny):
    refused(f"--config={tiny.config}", "--workdir=/proc/run", says=("/proc/run", "permissions"))


# -- as a process


def test_late_reads_of_a_damaged_checkpoint_are_not_printed_but_other_errors_are(capfd):
    late = SimpleNamespace(exc_value=RuntimeError("Event loop is closed"))
    process.hush(late)
    assert capfd.readouterr().err == ""

    class Failing:
        def __del__(self):
            raise ValueError("something else")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "unraisablehook", process.hush)
        del [Failing()][0]
    assert "something else" in capfd.readouterr().err


def start(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, ROOT / "launch.py", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"JAX_PLATFORMS": "cpu", **options},
    )


def test_a_closed_pipe_ends_the_command_quietly(tiny):
    arguments = ["--mode=translate", f"--workdir={tiny.workdir}", "--config.decode.beam_size=1"]
    with start(*arguments, "--config.decode.batch_size=512") as process:
        process.stdin.write(b"a\n" * 3000)
        process.stdin.close()
        assert process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
    assert (process.returncode, errors) == (0, b"")


def test_text_is_utf8_whatever_the_terminal_says(tiny):
    arguments = [f"--config={tiny.config}", f"--workdir={tiny.workdir}"]
    with start(*arguments, PYTHONIOENCODING="ascii") as process:
        out, errors = process.communicate()
    assert (process.returncode, errors) == (0, b"")
    assert "±" in out.decode("utf-8")
