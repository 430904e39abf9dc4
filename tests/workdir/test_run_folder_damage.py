"""Damaged records of a run are named with the fix, shown or passed over, whatever they hold."""

import json
from pathlib import Path

import pytest

from experiments import run
from experiments.report import numbers
from runs import without_search
from tiny_run import command, refused, without_pictures
from transformer import records, workdir
from transformer.errors import UserError

DAMAGE = {
    "empty": b"",
    "a list": b"[]",
    "a string": b'"x"',
    "null": b"null",
    "a number": b"3",
    "no keys": b"{}",
    "cut": b'{"step": 4',
    "not UTF-8": b'{"a": "\xff"}',
    "nested": b"[" * 100_000,
    "a long number": b'{"step": ' + b"9" * 5000 + b"}",
}
READ_BY = {
    "config.json": ("translate", "report", "evaluate", "train"),
    "results.json": ("report", "train"),
    "data.json": ("report", "evaluate"),
    "environment.json": ("report", "evaluate"),
    "held_out/validation.jsonl": ("evaluate",),
    "held_out/test.jsonl": ("evaluate", "heads", "align"),
}


def with_other_leaves(value, change):
    """Yields JSON in which one leaf after another, or a whole branch, is changed or missing."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(pairs):
        changed = value.copy()
        changed[key] = change(inner)
        yield changed
        if isinstance(inner, dict | list):
            for each in with_other_leaves(inner, change):
                changed = value.copy()
                changed[key] = each
                yield changed


@pytest.mark.parametrize("name", READ_BY)
def test_damage_is_named_with_the_fix_in_every_mode_that_reads_it(copy, tmp_path, name):
    arguments = [f"--workdir={copy}", f"--config.data.cache_dir={tmp_path / 'cache'}"]
    for damage, data in DAMAGE.items():
        (copy / name).write_bytes(data)
        for mode in READ_BY[name]:
            ended = refused(f"--mode={mode}", *arguments, says=name, stdin=b"a\n")
            assert len(ended.err.splitlines()) == 1, (damage, mode)
            assert len(ended.err) < 600, (damage, mode)
            assert any(word in ended.err for word in ("restore", "delete it")), (damage, mode)


CHANGES = {
    "as text": lambda value: str(value),
    "null": lambda value: None,
    "huge": lambda value: 10**400,
    "a list": lambda value: [value],
    "negative": lambda value: -value if isinstance(value, int | float) else value,
}


def tables(folder: Path, config) -> None:
    """Makes all tables that a report has of a run's records."""
    if results := records.read_results(folder / "results.json"):
        numbers.main_score(config.task, results)
        numbers.score_table(config.task, results)
        numbers.signatures(results)
        numbers.decode_table(config, results)
        numbers.cost_table(results, "tokens")
        numbers.duration(results["wall_seconds"])
        numbers.class_table(results["validation"])
        run.print_results(results, "translation")
    environment = records.read_environment(folder / "environment.json")
    if environment:
        numbers.environment_table(environment)
    if data := records.read_data(folder / "data.json"):
        numbers.data_tables(data)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["results.json", "data.json", "environment.json"])
def test_records_with_any_other_value_are_refused_or_shown(copy, name, change):
    config, refusals = workdir.load_config(copy), []
    tables(copy, config)  # a control
    for damaged in with_other_leaves(json.loads((copy / name).read_text()), CHANGES[change]):
        (copy / name).write_text(json.dumps(damaged))
        try:
            tables(copy, config)
        except UserError as error:
            refusals.append(str(error))
    assert all(str(copy / name) in refusal for refusal in refusals)
    assert refusals or change in ("negative", "as text")


def test_lines_of_the_metrics_that_are_damaged_are_passed_over(copy, tmp_path):
    path = copy / "metrics.jsonl"
    lines = ["[]", '"x"', "null", '{"step": "9", "loss": 1}', '{"step": 9, "loss": "1"}', "{"]
    damaged = "\n".join(lines).encode() + b'\n{"step": 1, "split": "$\\\\frac", "loss": 3}\n\xff\n'
    path.write_bytes(path.read_bytes() + damaged)
    assert command("--mode=report", f"--workdir={copy}").code == 0
    with without_pictures(), without_search():
        ended = command(
            f"--workdir={copy}", "--config.train.steps=41", f"--config.data.cache_dir={tmp_path}"
        )
    assert ended.code == 0, ended.err
