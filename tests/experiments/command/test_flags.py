"""A wrong flag or folder ends in one line that names it with the fix, and code 2."""

import pytest

from tiny_run import command, refused


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--config=x.py"], "--workdir is missing"),
        (["--config=x.py", "--workdir=", "--mode=plan"], "--workdir is empty"),
        (["--workdir=~nobody_here/x", "--mode=report"], "begins with ~, and there is no such home"),
        (["--workdir=x"], ("--config is missing", "configs/quickstart.py")),
        (["--config=x.py", "--wrkdir=x"], ("wrkdir", "workdir")),
        (["--config=x.py", "--workdir=x", "--mode=trian"], ("trian", "train", "translate")),
        (["--config=x.py", "--workdir=x", "again"], ("'again'", "--name=value")),
        (["--workdir=x", "--config.seed"], ("--config.seed", "=value")),
        (["--workdir=x", "--config=x.py", "--layer=1"], "--layer is for --mode=attention, not for"),
        (["--workdir=x", "--mode=attention", "--nohide_eos"], "x has no run"),  # a control
        (["--workdir=x", "--config=nowhere/x.py"], "nowhere/x.py is not a file"),
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


def test_a_workdir_that_is_a_file_or_lies_below_one_is_refused(tiny, tmp_path):
    path = tmp_path / "file"
    path.write_text("mine")
    refused(f"--config={tiny.config}", f"--workdir={path}", says=(str(path), "is a file"))
    refused(f"--config={tiny.config}", f"--workdir={path}/run", says=(str(path), "check the path"))
    assert path.read_text() == "mine"
