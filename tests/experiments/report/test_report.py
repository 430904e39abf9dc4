"""The report of a run says what its files say, is one file, and is honest about what is missing."""

import base64
import io
import json
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from chromium import PHONE, opened, overflow
from configs import base
from experiments import environment
from experiments.attention import snapshot_figures
from experiments.attention.snapshots import Snapshot
from experiments.config import override
from experiments.report import numbers
from experiments.report import page as report
from experiments.report import texts as report_texts
from experiments.report.attention import MAX_TOKENS, attention_map, cross_attention
from experiments.report.errors import (
    EXACT,
    MODEL,
    SEARCH,
    Reference,
    Sentence,
    judge,
    penalised,
    score_references,
)
from tiny_run import command, forget_weights, refused, shared_run
from transformer.analysis.attention import Attention
from transformer.data.cleaning.report import CleaningReport
from transformer.data.tokenizer import UNK_ID
from transformer.inference.translator import Translator
from transformer.keys import flatten
from transformer.workdir import TrainedRun, load_config, load_results

WIDE = 2800  # pixels of a picture
HOSTILE = '<script>alert("1")</script> & <b>'


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return shared_run(tmp_path_factory)


@pytest.fixture(scope="module")
def page(tiny):
    """The report that was made at the end of the training."""
    return (tiny.workdir / "report.html").read_text(encoding="utf-8")


@pytest.fixture
def copy(tiny, tmp_path):
    return tiny.copy(tmp_path / "run")


def decode(penalty, alpha=1.0):
    settings = base.get_config().decode
    settings.length_penalty, settings.alpha = penalty, alpha
    return settings


def sentence(translation="x", log_prob=-4.0, tokens=1, reference="y"):
    return Sentence(1, "source", reference, translation, 0.0, log_prob, tokens)


def same_page(config, folder):
    """The page of a run whose checkpoint is not read."""
    return report.write(config, folder, load_results(folder), None, "nobody looked").read_text()


def embedded(picture) -> Image.Image:
    """A picture as the page holds it."""
    return Image.open(io.BytesIO(base64.b64decode(picture.source.partition(",")[2])))


class Reader(Translator):
    """A translator whose words are tokens, and which weighs the source's by their places.

    `read` are the shapes of what it was given.
    """

    max_length = MAX_TOKENS + 9
    source_tokenizer = target_tokenizer = SimpleNamespace(
        encode=lambda texts: [[7] * len(text.split()) for text in texts],
        pieces=lambda ids: ["x"] * len(ids),
    )

    def __init__(self, kind="transformer", attention="none"):
        layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
        settings = SimpleNamespace(architecture=kind, recurrent_attention=attention, **layers)
        self.model, self.read = SimpleNamespace(config=settings), []

    def score(self, variables, sources, targets):
        return ((-1.0, len(target.split()) + 1) for target in targets)

    def batch_attention(self, variables, batch):
        self.read.append(batch.source.shape)
        rows, length = batch.source.shape
        heads = jnp.stack([jnp.arange(length) / 10, jnp.zeros(length)])  # their mean is a half
        weights = jnp.broadcast_to(heads[:, None], (rows, 2, length, length))
        return {"cross": SimpleNamespace(weights=jnp.stack([weights + 1, weights]))}


# -- whose error it is


def judged(found, given, own, tokens=1, is_found=False):
    """What became of a translation of log-probability -4 whose reference has this one."""
    return judge([found], [Reference(given, tokens, is_found)], own)[0]


def test_an_error_is_the_search_s_where_the_reference_scores_higher():
    own = decode("none")
    kinds = {given: judged(sentence(), given, own).kind for given in (-3.9, -4.0, -4.1)}
    assert kinds == {-3.9: SEARCH, -4.0: MODEL, -4.1: MODEL}
    assert judged(sentence(translation="y"), -3.9, own).kind == EXACT
    assert judged(sentence(), -3.9, own)[1:3] == (-4.0, -3.9)


@pytest.mark.parametrize(("found", "lead"), [(-4.0, 4e-3), (-0.1, 1e-3)])
def test_a_lead_that_rounding_may_make_is_no_search_error(found, lead):
    own, sentences = decode("none"), sentence(log_prob=found)
    assert judged(sentences, found + 0.9 * lead, own).kind == MODEL
    assert judged(sentences, found + 1.1 * lead, own).kind == SEARCH


def test_scores_are_compared_as_the_search_compares_them():
    # (5 + 1) / 6 = 1 and (5 + 13) / 6 = 3: the longer of the two is ahead by its penalty alone.
    found, given = sentence(log_prob=-4.0, tokens=1), (-6.0, 13)
    kinds = {}
    for penalty in ("gnmt", "average", "none"):
        kinds[penalty] = judged(found, given[0], decode(penalty), tokens=given[1]).kind
    assert penalised(*given, decode("gnmt")) == pytest.approx(-2.0)
    assert penalised(*given, decode("average")) == pytest.approx(-6 / 13)
    assert kinds == {"gnmt": SEARCH, "average": SEARCH, "none": MODEL}


def test_sentences_without_a_translation_or_a_whole_reference_are_no_errors():
    blank = sentence(translation="", log_prob=0.0, tokens=0)
    assert judge([blank], [Reference(-1.0, 1, False)], decode("gnmt")) == []
    assert judge([sentence()], [None], decode("gnmt")) == []


def test_references_that_are_cut_are_not_scored_and_the_same_tokens_are_the_same_text():
    reader = Reader()
    reader.max_length = 4
    found = [sentence(reference=text) for text in ("a b c", "a b c d", "a")]
    references = score_references(TrainedRun(reader, {}), found)
    assert references == [Reference(-1.0, 4, False), None, Reference(-1.0, 2, True)]
    assert judged(found[2], -1.0, decode("none"), is_found=True).kind == EXACT
    long = sentence(reference="a")._replace(source="a b c d")  # which was translated in parts
    assert score_references(TrainedRun(reader, {}), [long]) == [None]


def test_references_with_unknown_words_are_left_out_since_no_search_writes_them():
    reader = Reader()
    reader.target_tokenizer = SimpleNamespace(
        encode=lambda texts: [
            [UNK_ID if word == "中" else 7 for word in text.split()] for text in texts
        ]
    )
    trained = TrainedRun(reader, {})
    unknown, known = sentence("x x", reference="a 中"), sentence("x x", reference="a")
    assert score_references(trained, [unknown, known]) == [None, Reference(-1.0, 2, False)]

    def counts(*sentences):
        group = report_texts._errors(decode("none"), sentences, trained, "")
        left_out = [note for note in group.notes if note.startswith("Left out")]
        return {row[0]: row[1] for row in group.tables[0].rows}["search error"], left_out

    # Both references score above the translation.
    found, [note] = counts(unknown, known, unknown)
    assert found == "1"
    assert note.startswith("Left out: 2 sentences")
    assert "unknown words" in note
    assert counts(known) == ("1", [])


def test_the_likelihoods_kept_of_translations_are_those_of_the_mode_score(tiny):
    texts = {
        kind: (tiny.workdir / f"translations/test{kind}").read_text().splitlines()
        for kind in (".source.txt", ".txt", ".scores.tsv")
    }
    pairs = "".join(f"{a}\t{b}\n" for a, b in zip(texts[".source.txt"], texts[".txt"], strict=True))
    scored = command("--mode=score", f"--workdir={tiny.workdir}", stdin=pairs.encode()).out
    kept, again = (
        np.array([line.split("\t") for line in lines], float)
        for lines in (texts[".scores.tsv"], scored.splitlines())
    )
    np.testing.assert_allclose(kept, again, atol=2e-3)
    assert len(set(kept[:, 0])) > 1


# -- what the page says


def test_a_run_ends_in_a_report_with_its_scores_texts_and_numbers(tiny, page):
    results = load_results(tiny.workdir)
    scores = results["test"]
    assert f"BLEU {scores['bleu']:,.2f} ± {scores['bleu_ci']:,.2f} on the 7 sentences" in page
    assert scores["chrf_signature"] in page
    assert f"{results['parameters']:,} parameters" in page
    assert '<th scope="row">decode.beam_size</th><td>4</td>' in page
    started = json.loads((tiny.workdir / "environment.json").read_text())["started"]
    assert f"last started {started[:10]} {started[11:16]} UTC" in page
    for section in ("scores", "curves", "samples", "errors", "worst", "slowest", "data", "config"):
        assert f'id="{section}"' in page
    assert page.count('aria-label="Heat map of attention') == 2 * report_texts.SAMPLES
    counts = re.findall(
        r'<th scope="row">(?:translation equals|search error|model error)[^<]*</th><td>(\d+)<', page
    )
    assert len(counts) == 3
    assert sum(map(int, counts)) == 7


def test_the_page_is_one_file_that_asks_for_nothing(page):
    targets = re.findall(r'(?:src|href)="([^"]{0,40})', page)
    beside = "figures/attention/explorer.html"  # opens where the report stays in the run's folder
    assert {target for target in targets if not target.startswith(("#", "data:"))} == {beside}
    assert "url(" not in page.replace("url(#", "")
    assert len(page) < 5_000_000


def test_no_text_of_the_data_becomes_a_part_of_the_page(tiny, copy):
    for kind in (".txt", ".source.txt", ".reference.txt"):
        (copy / f"translations/test{kind}").write_text(f"{HOSTILE}\n" * 7)
    config = load_config(copy)
    config.name = HOSTILE
    page = same_page(config, copy)
    assert "<script" not in page
    assert "<b>" not in page
    assert page.count("&lt;script&gt;alert") > 7


def test_the_report_is_made_again_without_the_data(tiny, copy, page):
    (copy / "report.html").unlink()
    shutil.rmtree(copy.parent / "cache", ignore_errors=True)
    ended = command("--mode=report", f"--workdir={copy}")
    assert (ended.code, ended.out) == (0, f"{copy / 'report.html'}\n"), ended.err
    # The page is called by the run's folder, which here is another one.
    title = "<title>workdir: training report</title>"
    assert title in page
    page = page.replace(">workdir: training", ">run: training")
    assert (copy / "report.html").read_text() == page


def test_missing_parts_name_what_adds_them(tiny, copy):
    for name in ("data.json", "environment.json", "translations/test.scores.tsv", "metrics.jsonl"):
        (copy / name).unlink()
    shutil.rmtree(copy / "checkpoints")
    forget_weights(copy)
    assert command("--mode=report", f"--workdir={copy}").code == 0
    page = (copy / "report.html").read_text()
    assert "no checkpoint yet" in page
    assert "No curves" in page
    assert "did not keep what was made of its text: --mode=evaluate adds it" in page
    assert "did not keep the scores of its translations: --mode=evaluate adds them" in page
    assert "did not keep where it was trained" in page
    assert "last started" in page  # as TensorBoard's file says
    (copy / "translations/test.txt").write_text("too few\n")
    assert "do not belong together" in same_page(load_config(copy), copy)


@pytest.mark.parametrize("name", ["test.txt", "test.source.txt", "test.scores.tsv"])
@pytest.mark.parametrize(
    "content",
    [
        b"\0\xff\xc0\x01\n" * 7,
        b"1\t2\t3\n" * 7,
        b"one\ttwo\n" * 7,
    ],
)
def test_a_damaged_translation_is_named_with_what_writes_it_again(copy, name, content):
    (copy / "translations" / name).write_bytes(content)
    groups = report._groups(load_config(copy), copy, load_results(copy), None, "nobody looked")
    notes = "\n".join(note for group in groups for note in group.notes)
    is_text = content[0] != 0 and name.endswith(".txt")
    assert (f"translations/{name} is damaged: --mode=evaluate writes it again" in notes) != is_text
    assert str(copy) not in notes


def test_scores_of_other_checkpoints_are_not_mixed_with_these(tiny, copy):
    results = {**load_results(copy), "averaged_steps": [20]}
    (copy / "results.json").write_text(json.dumps(results))
    assert command("--mode=report", f"--workdir={copy}").code == 0
    page = (copy / "report.html").read_text()
    assert "the checkpoints are not those of the results" in page
    assert "Heat map" not in page


def test_errors_are_judged_by_the_search_that_made_the_scores(tiny):
    config, results = load_config(tiny.workdir), load_results(tiny.workdir)
    assert results["decode"] == config.decode.to_dict()

    def told(results):
        groups = report._groups(config, tiny.workdir, results, TrainedRun(Reader(), {}), "")
        [note] = [note for group in groups for note in group.notes if "length penalty" in note]
        return note, dict(numbers.decode_table(config, results).rows)

    note, table = told({**results, "decode": {**results["decode"], "beam_size": 7, "alpha": 0.25}})
    assert "length penalty (gnmt, alpha 0.25), as the search with a beam of 7 compares" in note
    assert (table["decode.beam_size"], table["decode.alpha"]) == ("7", "0.25")
    older = {name: value for name, value in results.items() if name != "decode"}
    note, table = told(older)
    assert "length penalty (gnmt, alpha 0.6), as the search with a beam of 4 compares" in note
    assert table["decode.beam_size"] == "4"
    assert "results.json does not record it" in numbers.decode_table(config, older).caption


def test_a_report_is_called_by_its_run_and_names_the_config_beneath(tiny, copy, monkeypatch):
    monkeypatch.chdir(copy)
    config = load_config(copy)
    config.name = "imdb"
    page = same_page(config, Path("."))
    assert "<h1>run: training report</h1>" in page
    assert '<p class="facts">config imdb · translation' in page


@pytest.mark.parametrize(("loss", "shown"), [(2.5, ["nll"]), (2.6, ["nll", "loss"])])
def test_a_loss_that_is_the_nll_has_no_row_of_its_own(loss, shown):
    scores = {"nll": 2.5, "loss": loss, "bleu": 3.0}
    table = numbers.score_table("translation", {"validation": scores, "test": scores})
    names = [row[0].partition(" (nats)")[0] for row in table.rows]
    assert [name for name in names if name in ("loss", "nll")] == shown


def test_a_run_without_results_is_refused(tiny, copy):
    (copy / "results.json").unlink()
    says = ("has no results.json", "--mode=evaluate")
    refused("--mode=report", f"--workdir={copy}", says=says)
    (copy / "config.json").unlink()
    refused("--mode=report", f"--workdir={copy}", says="has no run")


def test_the_command_makes_the_same_config_from_the_defaults(tiny):
    config = load_config(tiny.workdir)
    config.data.path, config.data.tfds_fields = "my 'own' texts", ("a", "b c")
    flags = subprocess.run(
        ["sh", "-c", "printf '%s\\n' " + numbers.command(config)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    again = base.get_config()
    for flag in flags:
        if flag.startswith("--config."):
            override(again, *flag.removeprefix("--config.").split("=", 1))
    assert flatten(again) == flatten(config)
    assert flatten(again) != flatten(base.get_config())


def test_what_cleaning_dropped_is_kept_with_the_run(tiny):
    data = json.loads((tiny.workdir / "data.json").read_text())
    cleaning = data["cleaning"]
    assert cleaning["read"] == 200
    assert cleaning["kept"] + sum(cleaning["dropped"].values()) == 200
    assert data["splits"]["train"] == {"sentence pairs": cleaning["kept"]}
    assert data["splits"]["test"] == {"sentence pairs": 7}


def test_the_table_of_cleaning_says_why_pairs_were_dropped():
    found = CleaningReport(total=8, kept=5, empty=2, duplicate=1)
    table = numbers.cleaning_table(
        {"cleaning": {"read": found.total, "kept": found.kept, "dropped": found.dropped}}
    )
    assert table.rows == [
        ["read", "8", "100.00%"],
        ["with an empty side", "2", "25.00%"],
        ["repeated", "1", "12.50%"],
        ["kept", "5", "62.50%"],
    ]


def test_the_commit_is_told_with_whether_the_code_was_changed(tmp_path):
    assert environment._commit(tmp_path) is None

    def git(*arguments):
        own = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", "-C", tmp_path, *own, *arguments], check=True, capture_output=True)

    git("init")
    (tmp_path / "a.py").write_text("1\n")
    git("add", "a.py")
    git("commit", "-m", "one")
    found = environment._commit(tmp_path)
    assert re.fullmatch(r"[0-9a-f]{40}", found["commit"])
    assert not found["changed"]
    (tmp_path / "a.py").write_text("2\n")
    assert environment._commit(tmp_path) == {**found, "changed": True}
    (tmp_path / "within").mkdir()  # where code may lie that is not of this checkout
    assert environment._commit(tmp_path / "within") is None


# -- pictures


def test_a_heat_map_has_a_cell_for_each_weight_that_shows():
    weights = np.array([[0.7, 0.3, 0.0], [0.004, 0.5, 0.496]])
    drawn = attention_map(weights, ["a", "\n"], ["x", "", "y" * 40])
    assert [token for _, token in drawn.rows] == ["a", "⟨000A⟩"]
    assert [token for _, token in drawn.columns] == ["x", "∅", "y" * 19 + "…"]
    places = {(y, x): share for x, y, share in drawn.cells}
    rows, columns = ([place - drawn.cell / 2 for place, _ in side] for side in drawn[5:7])
    seen = [[places.get((y, x), 0.0) for x in columns] for y in rows]
    assert seen == [[0.7, 0.3, 0.0], [0.0, 0.5, 0.5]]


def test_the_heat_map_is_the_mean_of_the_last_layer_and_long_texts_are_never_read():
    reader, long = Reader(), "a " * MAX_TOKENS
    sources, translations = ["a b", long, "a", "a b c d"], ["a", "a", long, "a b"]
    maps = cross_attention(TrainedRun(reader, {}), sources, translations)
    assert [drawn is not None for drawn in maps] == [True, False, False, True]
    assert reader.read == [(2, MAX_TOKENS)]
    assert [token for _, token in maps[0].rows] == ["x", "</s>"]
    assert [token for _, token in maps[3].columns] == ["x"] * 4 + ["</s>"]
    assert [share for *_, share in maps[3].cells] == [0.05, 0.1, 0.15, 0.2] * 3


def test_no_heat_map_is_drawn_without_attention():
    for attention, drawn in (("none", False), ("additive", True)):
        [found] = cross_attention(TrainedRun(Reader("recurrent", attention), {}), ["a"], ["b"])
        assert (found is not None) == drawn


def test_pages_beside_the_report_are_named(tiny, copy):
    (copy / "figures/attention/explorer.html").write_text("")
    page = same_page(load_config(copy), copy)
    assert '<a href="figures/attention/explorer.html">' in page


def test_pictures_are_made_small_and_those_that_do_not_fit_are_named(tmp_path, monkeypatch):
    noise = np.random.default_rng(0).integers(0, 256, (20, WIDE, 3), np.uint8)
    for name in ("confusion.png", "heads/a_b.png"):
        (tmp_path / "figures" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise).save(tmp_path / "figures" / name)
    shown, left_out = report._pictures(tmp_path / "figures")
    for picture in shown:
        assert embedded(picture).size == (WIDE * report.HELD // report.DRAWN, 13)
        assert (picture.width, picture.height) == (WIDE * report.SHOWN // report.DRAWN, 11)
    assert shown[1].caption == "Importance of the attention heads: a b"
    assert left_out == []
    monkeypatch.setattr(report, "MAX_PICTURE_BYTES", len(shown[0].source) + 1)
    shown, left_out = report._pictures(tmp_path / "figures")
    assert (len(shown), left_out) == (1, ["figures/heads/a_b.png"])


def test_the_smallest_labels_of_a_wide_strip_are_readable_in_the_report(tmp_path):
    rng, tokens = np.random.default_rng(0), [f"▁word{i}" for i in range(32)]
    weights = rng.dirichlet(np.ones(32), (2, 4, 32)).astype(np.float32)
    seen = Attention({"cross": weights}, {}, tokens, tokens)
    figure = snapshot_figures.strip_figure(
        snapshot_figures.find_strip([Snapshot(step, [seen], {}) for step in range(1, 20)], 0)
    )
    (tmp_path / "attention_snapshots").mkdir()
    figure.savefig(tmp_path / "attention_snapshots" / "strip_1.png")
    [picture], _ = report._pictures(tmp_path)
    points = min(label.get_fontsize() for label in figure.axes[0].get_yticklabels())
    pixels = points / 72 * picture.width / figure.get_size_inches()[0]
    assert pixels >= 9
    assert embedded(picture).width >= picture.width  # they are not blurred
    # They do not overlap either: rows are as far apart as they are high.
    ticks = figure.axes[0].get_yticks()
    figure.canvas.draw()
    places = figure.axes[0].transData.transform([(0, tick) for tick in ticks])[:, 1]
    assert np.abs(np.diff(places)).min() / figure.dpi * 72 >= points


def test_the_colours_of_a_heat_map_stay_what_they_were(tmp_path):
    figure = Figure(figsize=(4, 4), dpi=200)
    axes = figure.add_axes((0, 0, 1, 1))
    weights = np.random.default_rng(0).random((40, 40)) ** 6
    axes.imshow(weights, cmap="Blues", vmin=0, vmax=1)
    figure.savefig(tmp_path / "map.png")
    [picture], _ = report._pictures(tmp_path)
    with Image.open(tmp_path / "map.png") as before:
        apart = np.array(before.convert("RGB"), int) - np.array(embedded(picture).convert("RGB"))
    assert np.abs(apart).max() <= 12


def test_pictures_that_cannot_be_read_are_named_and_a_large_one_takes_no_room(
    tmp_path, monkeypatch
):
    figures = tmp_path / "figures"
    (figures / "attention_snapshots").mkdir(parents=True)
    noise = np.random.default_rng(0).integers(0, 256, (90, 90, 3), np.uint8)
    for number in (10, 2, 1):
        Image.fromarray(noise if number == 1 else noise[:2]).save(
            figures / f"attention_snapshots/strip_{number}.png"
        )
    whole = (figures / "attention_snapshots/strip_1.png").read_bytes()
    (figures / "map.png").write_bytes(whole[: len(whole) // 2])
    (figures / "reading.png").write_bytes(b"")
    damaged = ["figures/map.png (cannot be read)", "figures/reading.png (cannot be read)"]
    shown, left_out = report._pictures(figures)
    assert [picture.caption[-8:] for picture in shown] == [" strip 1", " strip 2", "strip 10"]
    assert left_out == damaged
    monkeypatch.setattr(report, "MAX_PICTURE_BYTES", len(shown[0].source) - 1)
    shown, left_out = report._pictures(figures)
    assert [picture.caption[-8:] for picture in shown] == [" strip 2", "strip 10"]
    assert left_out == [*damaged, "figures/attention_snapshots/strip_1.png"]


@pytest.mark.browser
def test_the_report_opens_without_errors_and_fits_a_phone(tiny, chromium):
    with opened(chromium, tiny.workdir / "report.html", viewport=PHONE) as page:
        assert overflow(page) == 0
        assert page.get_by_role("heading", name="Search errors and model errors").is_visible()
