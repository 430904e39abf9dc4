"""The version and date of the last release are the same wherever they are given."""

import datetime
import re

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
