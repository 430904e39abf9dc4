"""The command as a process: it imports what it needs."""

import subprocess
import sys

import pytest

from places import ROOT

pytestmark = pytest.mark.full


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
