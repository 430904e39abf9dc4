"""The report of a run says what its files say, is one file, and is honest about what is missing."""

import json
import re
import shutil

import pytest
from report_examples import same_page

from chromium import PHONE, opened, overflow
from experiments.results import outputs as report_texts
from tiny_run import command, forget_weights, refused, unsealed
from transformer.runs.run import Run
from transformer.runs.workdir import load_config

HOSTILE = '<script>alert("1")</script> & <b>'


def test_a_run_ends_in_a_report_with_its_scores_texts_and_numbers(tiny, page):
    results = Run(tiny.workdir).results
    scores = results["test"]
    assert f"BLEU {scores['bleu']:,.2f} ± {scores['bleu_ci']:,.2f} on the 7 sentences" in page
    assert scores["chrf_signature"] in page
    assert f"{results['parameters']:,} parameters" in page
    assert '<th scope="row">decode.beam_size</th><td>4</td>' in page
    started = json.loads((tiny.workdir / "run.json").read_text())["environment"]["started"]
    assert f"last started {started[:10]} {started[11:16]} UTC" in page
    for section in ("scores", "curves", "samples", "errors", "worst", "data", "config"):
        assert f'id="{section}"' in page
    assert page.count('aria-label="Heat map of attention') == report_texts.SAMPLES
    counts = re.findall(
        r'<th scope="row">(?:translation equals|search error|model error)[^<]*</th><td>(\d+)<', page
    )
    assert len(counts) == 3
    assert sum(map(int, counts)) == 7


def test_the_page_is_one_file_that_asks_for_nothing(page):
    targets = re.findall(r'(?:src|href)="([^"]{0,40})', page)
    explorer = "figures/attention/explorer.html"  # opens where the report stays in the run's folder
    inside = "#", "data:", "http://127.0.0.1:8000/#text="  # a link to the page of serve
    assert {target for target in targets if not target.startswith(inside)} == {explorer}
    assert "url(" not in page.replace("url(#", "")
    assert len(page) < 5_000_000


def test_no_text_of_the_data_becomes_a_part_of_the_page(tiny, copy):
    for kind in (".txt", ".source.txt", ".reference.txt"):
        (copy / f"translations/test{kind}").write_text(f"{HOSTILE}\n" * 7)
    results = unsealed(copy / "results.json")
    del results["files"]  # as a stranger would
    (copy / "results.json").write_text(json.dumps(results))
    config = load_config(copy)
    config.name = HOSTILE
    page = same_page(config, copy)
    assert "<script" not in page
    assert "<b>" not in page
    assert page.count("&lt;script&gt;alert") > 7


def test_missing_parts_name_what_adds_them(tiny, copy):
    for name in ("run.json", "metrics.jsonl"):
        (copy / name).unlink()
    shutil.rmtree(copy / "checkpoints")
    forget_weights(copy)
    assert command("--mode=report", f"--workdir={copy}").code == 0
    page = (copy / "report.html").read_text()
    assert "has no checkpoint" in page
    assert "No curves" in page
    assert "did not keep what was made of its text: --mode=evaluate adds it" in page
    assert "did not keep where it was trained" in page
    assert "last started" not in page
    (copy / "translations/test.txt").write_text("too few\n")
    assert "translations/test.txt is damaged" in same_page(load_config(copy), copy)


@pytest.mark.full
def test_scores_of_other_checkpoints_are_not_mixed_with_these(tiny, copy):
    results = {**Run(copy).results, "averaged_steps": [20]}
    (copy / "results.json").write_text(json.dumps(results))
    assert command("--mode=report", f"--workdir={copy}").code == 0
    page = (copy / "report.html").read_text()
    assert "the checkpoints are not those of the results" in page
    assert "Heat map" not in page


def test_a_run_without_results_is_refused(tiny, copy):
    (copy / "results.json").unlink()
    says = ("has no results.json", "--mode=evaluate")
    refused("--mode=report", f"--workdir={copy}", says=says)


@pytest.mark.full
def test_the_report_is_made_again_without_the_data(tiny, copy, page):
    (copy / "report.html").unlink()
    shutil.rmtree(copy.parent / "cache", ignore_errors=True)
    ended = command("--mode=report", f"--workdir={copy}")
    assert (ended.code, ended.out) == (0, f"{copy / 'report.html'}\n"), ended.err
    # The page is called by the run's folder, which here is another one.
    assert "<h1>workdir: training report</h1>" in page
    page = page.replace(">workdir: training", ">copy: training")
    assert (copy / "report.html").read_text() == page


@pytest.mark.browser
def test_the_report_opens_without_errors_and_fits_a_phone(tiny, chromium):
    with opened(chromium, tiny.workdir / "report.html", viewport=PHONE) as page:
        assert overflow(page) == 0
        assert page.get_by_role("heading", name="Search errors and model errors").is_visible()
