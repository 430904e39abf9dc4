"""The command as a process: it imports what it needs, and ends quietly whatever the terminal."""

import os
import subprocess
import sys

import pytest

from places import ROOT

pytestmark = pytest.mark.full

# -- imports


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
        "import sys, experiments.command.command, experiments.modes.translation\n"
        f"print(*[name for name in {slow} if name in sys.modules])\n"
        "import experiments.sweep.sweep, transformer.metrics.text\n"
        f"print(*[name for name in {slow} if name in sys.modules])\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ended.stdout == "\nmatplotlib optuna sacrebleu scipy\n"  # the second line is a control


# -- as a process


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
