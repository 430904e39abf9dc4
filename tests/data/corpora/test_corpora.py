"""Several corpora: their settings, tags and text, and what is refused."""

import json

import pytest
from ml_collections import ConfigDict

from configs import base
from experiments.command import command as commands
from experiments.process.config import override
from experiments.results import run_tables as tables
from runs import toy_config
from source_settings import refused
from transformer.checks import check
from transformer.config import complete, flatten
from transformer.data.corpora import Tagger, corpora_of
from transformer.runs.run import Run
from transformer.tasks.pair_text import read_text
from transformer.tasks.translation import TranslationTask

TWO = (
    {"name": "a", "source_tag": "<2de>"},
    {"name": "b", "source_tag": "<2en>  <news>", "reverse": True, "weight": 3},
)


def with_corpora(*corpora):
    config = base.get_config()
    config.data.corpora = corpora
    return config


# -- settings


@pytest.mark.parametrize(
    ("corpora", "says"),
    [
        ([{"name": "a"}, {"name": "a"}], ("corpora[1]", "'a'", "another")),
        ([{"name": "a", "trian_source": "x"}], ("trian_source", "train_source")),
        ([{"name": "a", "weight": 0}], ("weight=0", "more than 0")),
        ([{"name": "a", "source_tag": "</s>"}], ("'</s>'",)),
        ([{"name": "a", "holdout": "middle"}], ("holdout", "corpus a", "middle")),
    ],
)
def test_a_corpus_that_cannot_be_is_refused_in_one_line(corpora, says):
    with refused(*says):
        check(with_corpora(*corpora))


def test_corpora_are_for_translation():
    check(config := with_corpora(*TWO))  # a control
    config.task, config.train.best_metric = "language_model", "loss"
    with refused("data.corpora", "translation"):
        check(config)


def test_a_corpus_has_the_keys_of_data_but_those_it_changes():
    config = with_corpora(
        {"name": "a", "train_source": "x.tsv", "tfds_fields": ["ru", "en"]}, TWO[1]
    )
    config.data.max_tokens = 17
    first, second = corpora_of(config.data)
    assert first[:4] == ("a", 1.0, "", False)
    assert second[:4] == ("b", 3.0, "<2en> <news>", True)
    assert (first.data.train_source, first.data.tfds_fields) == ("x.tsv", ("ru", "en"))
    assert (second.data.train_source, second.data.tfds_fields) == ("train.en", ("de", "en"))
    assert first.data.max_tokens == second.data.max_tokens == 17


def test_corpora_go_through_json_and_the_command_line_unchanged():
    config = with_corpora({**TWO[0], "tfds_fields": ("ru", "en")}, TWO[1])
    saved = complete(ConfigDict(json.loads(json.dumps(config.to_dict()))))
    assert flatten(saved) == flatten(config) != flatten(base.get_config())
    again = base.get_config()
    [(key, value, _)] = list(tables.differing(config))
    override(again, key, tables._as_flag(value))
    assert flatten(again) == flatten(config)
    with refused("data.corpora", "a.en"):
        override(again, key, "a.en")


# -- a stranger's folder


def test_a_folder_chooses_no_place_within_a_corpus(tmp_path):
    config = with_corpora({"name": "a", "source": "files", "path": "/secret", "seed": 3})
    Run(tmp_path, config).claim()
    assert "/secret/train.en" in commands.describe_text(Run(tmp_path, config))
    commands.forget_places(config, training=True)
    assert config.data.corpora[0]["path"] == "/secret"
    commands.forget_places(config, training=False)
    assert config.data.corpora == ({"name": "a", "source": "files", "seed": 3},)
    Run(tmp_path, config).check_same()
    config.data.corpora = ({"name": "a", "source": "files", "seed": 4},)
    with refused("data.corpora"):
        Run(tmp_path, config).check_same()


# -- tags


def test_a_line_begins_with_a_known_tag():
    tag = Tagger(with_corpora(*TWO).data, None)
    assert tag("<2de> Hello <2en>", "line 1") == "<2de> Hello <2en>"
    assert tag("<2en> <news> Hallo", "line 1") == "<2en> <news> Hallo"
    assert [tag(" ", "line 1"), tag("<2de> ", "line 1")] == [" ", ""]
    for line in ("Hello", "<2fr> Hello", "<2en> Hallo", "<news> Hallo", "<2de> <2de> x"):
        with refused("line 7", "<2de>, <2en> <news>", "give source_tag for all"):
            tag(line, "line 7")
    untagged = Tagger(with_corpora(*TWO, {"name": "c"}).data, None)
    assert untagged("Hello", "line 1") == "Hello"


def test_a_tag_is_put_before_every_line():
    tag = Tagger(with_corpora(*TWO).data, "<2en> <news>")
    assert tag("Hallo", "line 1") == "<2en> <news> Hallo"
    with refused("'<2en> <news> <2de>'"):
        tag("<2de> Hello", "line 1")
    with refused("source_tag=<2fr>", "<2de>, <2en> <news>"):
        Tagger(with_corpora(*TWO).data, "<2fr>")
    with refused("source_tag=<2de>", "leave it out"):
        Tagger(base.get_config().data, "<2de>")
    assert Tagger(base.get_config().data, None)("<2de> Hello", "line 1") == "<2de> Hello"


# -- text

PAIRS = [(f"s{i} x{'y' * (i % 5)}", f"t{i} z") for i in range(40)]


@pytest.fixture
def files(tmp_path):
    """A config of two corpora: a TSV file, and two files with the other language first."""
    (tmp_path / "a.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in PAIRS[:30]))
    for side, name in enumerate(("b.x", "b.y")):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in PAIRS[20:]))
    for name, own in (("v.tsv", PAIRS[:2]), ("w.tsv", [("extra", "mehr"), (" s25 x", "t25 z")])):
        (tmp_path / name).write_text("".join(f"{s}\t{t}\n" for s, t in own))
    shared = {"validation_source": "v.tsv", "validation_target": "", "test_target": ""}
    first = {"name": "a", "train_source": "a.tsv", "train_target": "", "source_tag": "<2t>"}
    second = {"name": "b", "train_source": "b.x", "train_target": "b.y", "reverse": True}
    first |= {**shared, "test_source": "w.tsv"}
    second |= {"validation_size": 3, "test_size": 4, "source_tag": "<2s>", "weight": 2.0}
    data = {"source": "files", "path": str(tmp_path), "corpora": (first, second)}
    changes = {f"data.{key}": value for key, value in data.items()}
    return toy_config(tmp_path / "cache", **{"tokenizer.kind": "char", **changes})


def test_each_corpus_has_its_files_direction_tag_and_held_out_pairs(files):
    pairs, corpus = read_text(files.data, files.tokenizer, None)
    test = {tuple(pair[:2]) for pair in pairs["test_b"]}
    assert (len(test), len(list(pairs["validation_b"]))) == (4, 3)
    assert test < {(f"<2s> {t}", s) for s, t in PAIRS[20:]}
    assert [pair[:2] for pair in pairs["test_a"]] == [
        ("<2t> extra", "mehr"),
        ("<2t> s25 x", "t25 z"),
    ]
    assert list(pairs["test"]) == [*pairs["test_a"], *pairs["test_b"]]
    trained = [
        (corpus.source_tokenizer.decode(s), corpus.target_tokenizer.decode(t))
        for s, t in zip(corpus.source, corpus.target, strict=True)
    ]
    first, second = (report.kept for report in corpus.reports)
    held = {(s, t) for s, t in PAIRS[:2]} | {
        (pair.target, pair.source.removeprefix("<2s> "))
        for split in ("validation_b", "test_b")
        for pair in pairs[split]
    }
    held.add(("s25 x", "t25 z"))
    assert trained[:first] == [(f"<2t> {s}", t) for s, t in PAIRS[:30] if (s, t) not in held]
    assert trained[first:] == [(f"<2s> {t}", s) for s, t in PAIRS[20:] if (s, t) not in held]
    assert first + second == len(trained)


def test_dropped_and_drawn_pairs_are_counted(files):
    task = TranslationTask(files)
    counts = task.data_summary()["corpora"]
    a, b = counts["a"], counts["b"]
    assert (a["read"], b["read"]) == (30, 13)
    for own in (a, b):
        assert own["kept"] + sum(own["dropped"].values()) == own["read"]
    assert a["dropped"]["in held-out text"] >= 3  # its validation pairs, and s25
    assert [a["drawn"], b["drawn"]] == task.plan.drawn
    assert b["drawn"] / a["drawn"] == pytest.approx(2 * b["kept"] / a["kept"], rel=0.1)
    first, second = task.notes()[:2]
    assert first.startswith(f"a: kept {a['kept']} of 30 sentence pairs; dropped")
    assert f"{b['drawn']} of the {sum(task.plan.drawn)} pairs of an epoch" in second
    assert "held out before: 3 for validation, 4 for test" in second
    head, *rows = tables.data_tables(task.data_summary())[1][1:]
    assert head == ["", "a", "b"]
    assert ["read", "30", "13"] in rows[0]


def test_each_corpus_is_cleaned_by_its_own_rules_in_the_direction_of_its_files(files, tmp_path):
    english, german = (
        "Where is my dog today, my dear friend?",
        "Wo ist mein Hund heute, mein Freund?",
    )
    pairs = [(f"{i} {english}", f"{i} {german}") for i in range(9)]
    pairs += [(german, english), (f"{english} 91", f"{german} 82"), (f"{english} " * 3, german)]
    (tmp_path / "c.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in pairs))
    own = {"train_source": "c.tsv", "train_target": "", "languages": ("en", "de")}
    own |= {"test_source": "w.tsv", "test_target": ""}
    own |= {"validation_source": "v.tsv", "validation_target": ""}
    strict = {"match_numbers": True, "max_token_ratio": 2.0, "max_length_ratio": 9.0}
    plain = {"name": "a", **own, "max_length_ratio": 9.0}
    files.data.corpora = (plain, {"name": "b", **own, **strict, "reverse": True})
    _, corpus = read_text(files.data, files.tokenizer, None)
    assert [report.dropped for report in corpus.reports] == [
        {"in another language": 1},
        {
            "with other numbers": 1,
            "in another language": 1,
            "over config.data.max_token_ratio": 1,
        },
    ]
    assert [report.kept for report in corpus.reports] == [11, 9]
    assert corpus.target_tokenizer.decode(corpus.target[11]) == f"0 {english}"
    files.data.corpora = (plain, {"name": "b", **own, "languages": ("en", "xx")})
    with refused("'b'", "('en', 'xx')"):
        read_text(files.data, files.tokenizer, None)
