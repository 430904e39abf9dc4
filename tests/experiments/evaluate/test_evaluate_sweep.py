"""One command evaluates all runs of a sweep on one text, each of them once."""

import json

import pytest

from tiny_run import command, refused, translators_once, unsealed
from transformer.data.held_out import path_of

pytestmark = pytest.mark.full

SEEDS = (3, 5, 7)


@pytest.fixture(scope="module", autouse=True)
def once():
    with translators_once():
        yield


@pytest.fixture
def sweep(tiny, tmp_path):
    """A sweep over seeds: copies of one run, as none is trained for this."""
    for number, seed in enumerate(SEEDS):
        folder = tiny.copy(tmp_path / f"seeds/trials/{number:03d}")
        config = unsealed(folder / "config.json")
        (folder / "config.json").write_text(json.dumps(config | {"seed": seed}))
    (tmp_path / "seeds/sweep.json").write_text('{"command": "c"}')
    return tmp_path / "seeds"


@pytest.fixture
def news(tiny, tmp_path):
    """A file of four pairs."""
    lines = path_of(tiny.workdir, "test").read_text().splitlines()[:4]
    pairs = [json.loads(line) for line in lines]
    path = tmp_path / "news.tsv"
    path.write_text("".join(f"{pair['source']}\t{pair['target']}\n" for pair in pairs))
    return path


def evaluate(sweep, *flags):
    ended = command("--mode=evaluate", f"--workdir={sweep}", *flags)
    assert ended.code == 0, ended.err
    return ended.out


def results(sweep, name="news"):
    """The files of the results, by trial."""
    return {
        path.parts[-4]: path for path in sweep.glob(f"trials/*/evaluations/{name}/results.json")
    }


def stamps(sweep, name="news"):
    return {trial: path.stat().st_mtime_ns for trial, path in results(sweep, name).items()}


def test_all_runs_are_scored_once_and_a_table_has_them_all(sweep, news):
    out = evaluate(sweep, f"--input={news}")
    assert [*sorted(results(sweep))] == ["000", "001", "002"]
    for number, seed in enumerate(SEEDS):
        assert f"run {number + 1} of 3: trials/00{number} (seed={seed})\n" in out
    table = out[out.rindex("seeds, evaluations/news") :]
    assert all(f"trials/00{number} (seed={seed})" in table for number, seed in enumerate(SEEDS))
    assert "BLEU: nrefs:1|" in table
    # The one that is missing, and one that was trained further, are scored, and no other.
    before, path = stamps(sweep), results(sweep)["002"]
    results(sweep)["001"].unlink()
    path.write_text(json.dumps(unsealed(path) | {"step": 20}))
    out = evaluate(sweep, f"--input={news}")
    assert "run 1 of 3: trials/000 (seed=3) has " in out
    assert "run 2 of 3: trials/001 (seed=5)\n" in out
    assert json.loads(path.read_text())["step"] == 40
    changed = {trial for trial, stamp in stamps(sweep).items() if stamp != before[trial]}
    assert changed == {"001", "002"}
    assert out[out.rindex("seeds, evaluations/news") :] == table


def test_other_settings_are_scored_on_the_held_out_text_and_own_results_are_kept(sweep):
    before = {path: path.read_bytes() for path in sweep.glob("trials/*/results.json")}
    evaluate(sweep, "--config.decode.beam_size=1")
    assert len(stamps(sweep, "beam_size=1")) == len(SEEDS)
    assert "trials/002 (seed=7) has " in evaluate(sweep)
    assert {path: path.read_bytes() for path in before} == before


def test_other_texts_and_damaged_runs_are_refused_before_any_run_is_scored(sweep, news):
    [*_, last] = sorted(sweep.glob("trials/*"))
    assert command("--mode=evaluate", f"--workdir={last}", f"--input={news}").code == 0
    before = stamps(sweep)
    news.write_text("a b\ta b\n")
    run = "--mode=evaluate", f"--workdir={sweep}", f"--input={news}"
    refused(*run, says=("trials/002/evaluations/news has the scores of another text", "--name"))
    (last / "config.json").write_text("{")
    refused(*run, says="trials/002/config.json cannot be read")
    assert stamps(sweep) == before
    assert [*before] == ["002"]


def test_runs_that_are_not_finished_are_left_out_and_named(sweep, news):
    (sweep / "trials/001/results.json").unlink()
    out = evaluate(sweep, f"--input={news}")
    assert "left out, as they are not finished: 001 of " in out
    assert [*sorted(results(sweep))] == ["000", "002"]
    for folder in sweep.glob("trials/*"):
        (folder / "results.json").unlink(missing_ok=True)
    run = "--mode=evaluate", f"--workdir={sweep}", f"--input={news}"
    refused(*run, says=("a sweep without a finished run", "resume it"))


def test_runs_that_were_scored_before_their_end_are_named_in_evaluations_and_comparisons(
    sweep, tiny, tmp_path
):
    stopped = sweep / "trials/001"
    config = unsealed(stopped / "config.json")
    config["train"]["steps"] = 80  # as if it had been interrupted
    (stopped / "config.json").write_text(json.dumps(config))
    line = f"before the end of the training: {stopped} (step 40)"
    assert f"scored {line}\n" in evaluate(sweep)
    ended = command(
        "--mode=compare", f"--runs={tiny.workdir},{stopped}", f"--output={tmp_path / 'out'}"
    )
    assert ended.code == 0, ended.err
    assert line in (tmp_path / "out/comparison.md").read_text().replace("\\_", "_")
