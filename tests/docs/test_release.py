"""Versions, dates and files are the same in the package and in what a host of it reads."""

import datetime
import itertools
import re
import tomllib

import yaml

import transformer
from places import ROOT


def test_changelog_package_and_citation_name_one_release():
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    first, *others = re.findall(r"^## (.*)$", changelog, re.MULTILINE)
    version, date = (others[0] if first == "Unreleased" else first).split(" - ")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert version == citation["version"] == transformer.__version__
    assert datetime.date.fromisoformat(date) == citation["date-released"]


def test_workflow_and_container_have_the_pythons_and_files_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lowest, end = map(int, re.findall(r"3\.(\d+)", project["requires-python"]))
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))["jobs"]
    matrix = jobs["tests"]["strategy"]["matrix"]
    assert matrix == {"python": [f"3.{minor}" for minor in range(lowest, end)]}
    assert (ROOT / jobs["tests"]["steps"][-1]["run"]).stat().st_mode & 0o100
    container = (ROOT / "Containerfile").read_text("utf-8")
    assert f"FROM python:3.{lowest}-slim\n" in container
    names = re.findall(r"^COPY (.*) \S+$|(configs/\w+\.py)", container, re.M)
    names = " ".join(itertools.chain(*names)).split()
    assert len(names) > 5
    assert [name for name in names if not [*ROOT.glob(name)]] == []
