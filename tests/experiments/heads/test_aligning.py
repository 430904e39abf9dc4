"""The mode `align`: each head's links and scores are those of its attention, read one by one."""

import re

import jax
import numpy as np
import pytest

import transformer
from experiments.heads import alignment
from experiments.heads import links as head_links
from experiments.heads.links import Head, HeadLinks, LinkScore
from tiny_run import command, loading_once, refused
from transformer.analysis.alignment import GoldLinks
from transformer.data.batches import make_batch
from transformer.data.pairs import Pair
from transformer.data.parallel.sources import open_source
from transformer.data.tokenizer import PAD_ID
from transformer.errors import UserError
from transformer.runs import workdir
from transformer.runs.run import Run


@pytest.fixture(scope="module", autouse=True)
def once():
    with loading_once():
        yield


@pytest.fixture(scope="module")
def aligned(tiny, tmp_path_factory):
    """The workdir of a run that was aligned, its scores, the links it wrote and how it ended."""
    folder = tiny.copy(tmp_path_factory.mktemp("aligned") / "run")
    at = f"--workdir={folder}", f"--output={folder / 'links.txt'}"
    ended = command("--mode=align", *at, "--attribution")
    assert ended.code == 0, ended
    scores = head_links.read_csv(folder / "figures" / "alignment" / "alignment.csv")
    return folder, scores, (folder / "links.txt").read_text().splitlines(), ended


@pytest.fixture(scope="module")
def by_hand(tiny):
    """Each test pair's links by every head, one pair after another, and their error rates."""
    config = workdir.load_config(tiny.workdir)
    run = Run(tiny.workdir, config).load_trained()
    translator, variables = run.predictor, run.variables

    @jax.jit
    def read(batch):
        inputs = batch.source, batch.target, batch.source != PAD_ID, batch.target != PAD_ID
        _, sown = translator.model.apply(variables, *inputs, mutable=["intermediates"])
        return translator.model.sown_attention(sown["intermediates"], "weights")["cross"][0][0]

    links, counts = {}, {}
    for pair in open_source(config.data)["test"]:
        ids = translator.source_tokenizer.encode([pair.source, pair.target])
        words = len(ids[0])
        weights = np.asarray(read(make_batch(ids[:1], ids[1:], 1, 13)))[:, : words + 1, :words]
        for rows, first in (("output", 0), ("input", 1)):
            # A letter is a word and a token; what follows the last of them is the end.
            for head, own in [*enumerate(weights, 1), (None, weights.mean(0))]:
                found = {(int(own[j + first].argmax()), j) for j in range(words)}
                key = Head(rows, 1 if head else None, head)
                links.setdefault(key, []).append(found)
                hits, total = counts.get(key, (0, 0))
                gold = set(pair.alignment)
                counts[key] = hits + 2 * len(found & gold), total + len(found) + len(gold)
    return links, {head: 1 - hits / total for head, (hits, total) in counts.items()}


def test_scores_and_the_best_heads_links_are_those_of_every_pair_read_alone(aligned, by_hand):
    folder, scores, lines, ended = aligned
    links, expected = by_hand
    assert len(scores) == 2 * (2 + 1 + 1)
    for head, rate in expected.items():
        assert scores[head].error_rate == pytest.approx(rate), head
    assert len({score.error_rate for score in scores.values()}) > 3  # heads and rows differ
    # As many links are found as are true, of words that have one link each.
    assert all(score.precision == score.recall for score in scores.values())
    best = min((head for head in expected if head.number), key=expected.get)
    read = [{tuple(map(int, link.split("-"))) for link in line.split()} for line in lines]
    assert read == links[best]
    assert ended.err == ""
    assert f"the best head: {best}" in " ".join(ended.out.split())
    for name in ("alignment.csv", "error_rate.png", "links.png"):
        path = folder / "figures" / "alignment" / name
        assert str(path) in ended.out
        assert path.stat().st_size > 0


def test_integrated_gradients_link_a_word_to_the_source_word_that_adds_most(aligned, tiny):
    run, hits, total = transformer.load(tiny.workdir), 0, 0
    for pair in open_source(run.config.data)["test"]:
        each = run.attribution(pair.source, pair.target, steps=head_links.STEPS)
        rows = each.values[:-1, : len(each.source_tokens) - 1]
        links = {(int(row.argmax()), j) for j, row in enumerate(rows) if row.max() > 0}
        hits += 2 * len(links & {*pair.alignment})
        total += len(links) + len(pair.alignment)
    [rate] = re.findall(r"integrated gradients: AER (\S+),", aligned[3].out)
    assert float(rate) == pytest.approx(1 - hits / total, abs=1e-3)


def test_files_of_pairs_and_links_take_the_place_of_the_test_set(aligned, tmp_path):
    folder, *_ = aligned
    pairs, gold, out = tmp_path / "pairs.tsv", tmp_path / "gold.txt", tmp_path / "out.txt"
    pairs.write_text("a b c\tb c\n\nd  e\te zzz yyy\n" + "f " * 40 + "\tg h\n")
    gold.write_text("1-0 2p1\n\n1-0\n39-1\n")
    copied = [f"--workdir={folder}", "--mode=align", f"--input={pairs}", f"--output={out}"]
    ended = command(*copied, f"--links={gold}")
    assert ended.code == 0, ended
    assert "line 4 has 40 source tokens: only the first 31 are read" in ended.err
    lines = out.read_text().splitlines()
    assert len(lines) == 4
    assert lines[1] == ""
    # Both unknown words are one token, which is the first one's.
    targets = [sorted(int(link.split("-")[1]) for link in line.split()) for line in lines]
    assert targets == [[0, 1], [], [0, 1], [0, 1]]
    # Without links, the head that was best aligns.
    again = command(*copied)
    assert again.code == 0, again
    assert "its error rate was" in again.err
    assert out.read_text().splitlines() == lines


def test_words_of_links_are_those_of_the_file_though_the_model_never_sees_some(aligned, tmp_path):
    folder, *_ = aligned
    pairs, gold, out = tmp_path / "pairs.tsv", tmp_path / "gold.txt", tmp_path / "out.txt"
    lines = {"b \u00ad c\u00a0d\tb c": "2-1", "b c\tb \u00ad c": "1-2", "\u00ad b\t\u00ad": "1-0"}
    pairs.write_text("".join(f"{line}\n" for line in lines))
    gold.write_text("".join(f"{links}\n" for links in lines.values()))
    files = [f"--input={pairs}", f"--links={gold}", f"--output={out}"]
    ended = command(f"--workdir={folder}", "--mode=align", *files)
    assert ended.code == 0, ended
    links = [re.findall(r"(\d)-(\d)", line) for line in out.read_text().splitlines()]
    assert {i for i, _ in links[0]} <= {"0", "2"}
    assert [j for _, j in links[1]] == ["0", "2"]
    assert links[2] == []


def test_what_cannot_be_aligned_is_refused_in_a_line(tiny, tmp_path):
    (tmp_path / "pairs").write_text("a b\tc\nd\te\n")
    (tmp_path / "gold").write_text("0-0\n1-0\n")
    (tmp_path / "sure").write_text("0-0\n\n")
    mode = ["--mode=align", f"--workdir={tiny.workdir}"]
    pairs, links = f"--input={tmp_path / 'pairs'}", f"--links={tmp_path / 'gold'}"
    sure = f"--links={tmp_path / 'sure'}"
    for arguments, says in [
        ([pairs, links], (f"{tmp_path / 'gold'}, line 2", "1-0 points past", "1 source words")),
        ([links], ("has fewer lines", "2 of which have one")),
        ([pairs, "--output=x"], ("--links is missing",)),
        (["--source_tag=<2de>"], ("--source_tag=<2de> is for another text", "--input")),
        ([pairs, sure, f"--output={tmp_path / 'pairs'}"], f"{tmp_path / 'pairs'} is a file that"),
        ([pairs, sure, f"--output={tmp_path / 'sure'}"], f"{tmp_path / 'sure'} is a file that"),
        (
            ["--config.model.recurrent_attention=none", "--config.model.architecture=recurrent"],
            "no attention to align words by",
        ),
    ]:
        refused(*mode, *arguments, says=says)
    assert (tmp_path / "sure").read_text() == "0-0\n\n"


def test_data_without_links_asks_for_them(tiny, monkeypatch):
    unlinked = {"test": [Pair("a b", "c")]}
    monkeypatch.setattr(
        "transformer.data.held_out.read_pairs", lambda folder, split: unlinked[split]
    )
    says = ("config.data.source=copy does not say", "--input=FILE", "--links=FILE")
    refused("--mode=align", f"--workdir={tiny.workdir}", says=says)
    unlinked["test"] = [Pair("", "", ())]
    says = "the test set of config.data.source=copy has no link"
    refused("--mode=align", f"--workdir={tiny.workdir}", says=says)


def test_a_damaged_table_of_scores_is_named(aligned, tmp_path):
    _, scores, *_ = aligned
    path = tmp_path / "alignment.csv"
    head_links.write_csv(path, scores)
    assert head_links.read_csv(path) == scores
    for text in ("", "rows,layer\n", path.read_text()[:-40] + "\n", "a\noutput,1,x,1,1,1\n"):
        path.write_text(text)
        with pytest.raises(UserError, match=r"alignment\.csv cannot be read"):
            head_links.read_csv(path)


def test_right_wrong_and_missed_links_are_drawn_between_their_words():
    pair = Pair("one two three", "eins zwei drei vier " + "viele " * 99)
    gold = [GoldLinks([(0, 0), (1, 1), (2, 100)], [(2, 2)])]
    chosen = np.full((1, 103), head_links.NO_LINK)
    chosen[0, :4] = [0, 2, 2, head_links.NO_LINK]
    scores = {Head("output", 1, 1): LinkScore(0.1, 0.5, 0.25)}
    figure = alignment.links_figure([pair], gold, HeadLinks(scores, [chosen]))
    axes = figure.axes[0]
    places = {text.get_text(): text.get_position()[0] for text in axes.texts}
    assert "…" in places  # of a hundred words some are shown
    assert {(*line.get_xdata(), line.get_linestyle()) for line in axes.lines} == {
        (places["one"], places["eins"], "-"),
        (places["three"], places["drei"], "-"),  # possible, hence right
        (places["three"], places["zwei"], "--"),
        (places["two"], places["zwei"], ":"),
    }
