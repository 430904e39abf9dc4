"""Final scores say how many placeholders of the sources are in the translations as often."""

import pytest

from experiments import run
from experiments.report import tables
from runs import toy_config
from transformer.data.pairs import Pair
from transformer.metrics.text import count_placeholders
from transformer.tasks.translation import TranslationTask

SYMBOLS = ("{name}", "{name}s", "%s")


@pytest.mark.parametrize(
    ("source", "translation", "counts"),
    [
        ("Dear {name}, %s and %s", "%s und %s, {name}", (3, 3)),
        ("%s and %s", "%s und", (2, 0)),  # one is lost
        ("%s and {name}", "%s %s, {name}", (2, 1)),  # one is there twice
        ("the {name}s", "{name}", (1, 0)),  # the longest counts
        ("no such thing", "%s", (0, 0)),
        ("{name} {Name} {name", "{name}", (1, 1)),
    ],
)
def test_a_placeholder_is_kept_if_its_translation_has_it_as_often(source, translation, counts):
    assert count_placeholders([source], [translation], SYMBOLS) == counts
    twice = count_placeholders(["%s", source], ["", translation], SYMBOLS)
    assert twice == (counts[0] + 1, counts[1])


def task_of(tmp_path, **changes):
    lines = "".join(f"a {{name}} {i} %s\tb {i} {{name}} %s\n" for i in range(40))
    (tmp_path / "text.tsv").write_text(lines)
    keys = {"data.source": "files", "data.path": str(tmp_path), "data.train_source": "text.tsv",
            "data.train_target": "", "tokenizer.kind": "char",
            "data.max_oov_rate": 1.0}  # fmt: skip
    return TranslationTask(toy_config(tmp_path / "cache", **{**keys, **changes}))


PAIRS = [Pair("<2de> Dear {name}", "Hallo {name}"), Pair("%s and %s", "%s und %s")]
TRANSLATIONS = ["Hallo {name}", "%s"]
KEPT = {"placeholders": 3, "placeholders_kept": 1}


def placeholders(task, final=True):
    scores = task.text_scores(TRANSLATIONS, PAIRS, final)
    return {name: value for name, value in scores.items() if name.startswith("placeholders")}


@pytest.mark.parametrize("joint", [True, False])
def test_placeholders_are_counted_in_final_scores_if_there_are_any(tmp_path, joint):
    keys = {"tokenizer.symbols": SYMBOLS, "tokenizer.joint": joint, "tokenizer.keep_spaces": True}
    if not joint:
        keys["model.tied_embeddings"] = "none"
    task = task_of(tmp_path, **keys)
    assert "\n" in task.predictor.source_tokenizer.symbols
    assert placeholders(task) == KEPT
    assert placeholders(task, final=False) == {}
    assert placeholders(task_of(tmp_path)) == {}


def test_tags_of_corpora_are_no_placeholders(tmp_path):
    corpora = ({"name": "a", "source_tag": "<2de>"},)
    task = task_of(tmp_path, **{"data.corpora": corpora})
    assert "<2de>" in task.predictor.source_tokenizer.symbols
    assert placeholders(task) == {}
    keys = {"data.corpora": corpora, "tokenizer.symbols": SYMBOLS}
    assert placeholders(task_of(tmp_path, **keys)) == KEPT


def test_a_line_and_the_report_show_them_where_there_are_any(capsys):
    scores = {"loss": 1.0, "nll": 1.0, "sentences": 2}
    results = {"step": 3, "averaged_steps": [3], "parameters": 90, "validation": scores}
    line = "Placeholders that are in the translation as often as in the source: test 1 of 3\n"
    for own, shown in ((scores | KEPT, True), (scores, False)):
        run.print_results(results | {"test": own}, "translation")
        assert (line in capsys.readouterr().out) == shown
        rows = tables.score_table("translation", results | {"test": own}).rows
        assert (["placeholders kept", "", "1"] in rows) == shown
