"""Scores of text and of tokens, and the file they go into."""

import math
import struct
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
import sacrebleu
from scipy import stats
from tensorboardX import SummaryWriter
from tensorboardX.proto.event_pb2 import Event

from places import ROOT
from transformer.files import parse_json
from transformer.metrics.text import corpus_scores, moses_lowercase
from transformer.metrics.tokens import add, loss_intervals, summarize
from transformer.model.losses import TokenSums
from transformer.runs.logs import MetricsWriter

HYPOTHESES = ["The cat sat on the mat.", "Two dogs run, fast!", "A man is here"]
REFERENCES = ["The cat sat on a mat.", "Two dogs run fast!", "A man is here"]


def sums(*values):
    return TokenSums(*map(jnp.float32, values))


# -- text


def test_scores_are_those_of_sacrebleu_itself():
    tokenizer = "char"
    scores = corpus_scores(HYPOTHESES, REFERENCES, tokenizer)
    bleu = sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], tokenize=tokenizer, force=True)
    assert scores["bleu"] == pytest.approx(bleu.score)
    assert scores["chrf"] == pytest.approx(sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score)
    assert 0 < scores["bleu"] < 100


def test_ter_is_of_final_scores_alone_and_has_an_interval():
    sides = [HYPOTHESES[0], *HYPOTHESES], [REFERENCES[0], *REFERENCES]
    assert "ter" not in corpus_scores(*sides, bootstrap=50)
    scores = corpus_scores(*sides, bootstrap=50, final=True)
    # One word of 6 differs, twice; "run," is a word other than "run"; the last is equal.
    assert scores["ter"] == pytest.approx(100 * 3 / (6 + 6 + 4 + 4))
    assert scores["ter_ci"] > 0
    assert corpus_scores(REFERENCES, REFERENCES, final=True)["ter"] == 0


def test_an_interval_comes_with_resamples_only():
    assert "bleu_ci" not in corpus_scores(HYPOTHESES, REFERENCES)
    scores = corpus_scores(HYPOTHESES * 2, REFERENCES * 2, bootstrap=50)
    assert scores["bleu_ci"] > 0
    assert scores["chrf_ci"] > 0
    assert "bs:50" in scores["bleu_signature"]
    assert "no_interval" not in scores


@pytest.mark.parametrize(
    ("pair", "why"),
    [
        ((HYPOTHESES, REFERENCES), "too few texts"),
        ((REFERENCES * 2, REFERENCES * 2), "resampled texts score the same"),
    ],
)
def test_a_score_whose_resamples_say_nothing_has_no_interval_and_says_why(pair, why):
    scores = corpus_scores(*pair, bootstrap=50, final=True)
    assert {name for name in scores if name.endswith("_ci")} == {"exact_match_ci"}  # Wilson's
    assert scores["no_interval"] == f"no interval of BLEU, chrF, TER: {why}"
    hits, texts = sum(map(str.__eq__, *pair)), len(pair[0])
    expected = stats.binomtest(hits, texts).proportion_ci(method="wilson")
    assert scores["exact_match_ci"] == pytest.approx([100 * expected.low, 100 * expected.high])
    assert not {"no_interval", "exact_match_ci"} & {*corpus_scores(*pair, bootstrap=1)}


@pytest.mark.parametrize(
    ("language", "text", "tokens"),
    [
        ("en", "A man's hat, isn't it?", "a man &apos;s hat , isn &apos;t it ?"),
        ("de", "„Zwei“ Hunde laufen.", "&quot; zwei &quot; hunde laufen ."),
    ],
)
def test_moses_lowercases_normalises_and_tokenises(language, text, tokens):
    assert moses_lowercase(language)(text) == tokens


def test_the_moses_score_is_bleu_of_what_moses_makes():
    scores = corpus_scores(HYPOTHESES, REFERENCES, moses="en")
    prepare = moses_lowercase("en")
    sides = [prepare(h) for h in HYPOTHESES], [[prepare(r) for r in REFERENCES]]
    expected = sacrebleu.corpus_bleu(*sides, tokenize="none", force=True)
    assert scores["bleu_moses_lowercase"] == pytest.approx(expected.score)
    assert "tok:none" in scores["bleu_moses_lowercase_signature"]
    shouted = corpus_scores([h.upper() for h in HYPOTHESES], REFERENCES, moses="en")
    assert shouted["bleu_moses_lowercase"] == pytest.approx(scores["bleu_moses_lowercase"])
    assert shouted["bleu"] < scores["bleu"]  # the control: case counts elsewhere
    several = corpus_scores(HYPOTHESES, REFERENCES, further=[HYPOTHESES], moses="en")
    assert "nrefs:2|" in several["bleu_moses_lowercase_signature"]
    assert several["bleu_moses_lowercase"] == pytest.approx(100)


# -- tokens


def test_merged_metrics_are_means_over_all_tokens_and_not_of_the_batches_means():
    values = summarize(add([sums(3.0, 2.0, 1.0, 2.0), sums(21.0, 11.0, 6.0, 11.0)]))
    assert values["loss"] == pytest.approx(24 / 13)
    assert values["accuracy"] == pytest.approx(7 / 13)
    assert values["perplexity"] == pytest.approx(2.718281828)
    assert values["loss"] != pytest.approx((3 / 2 + 21 / 11) / 2)


# -- metrics.jsonl


def logged(folder):
    lines = (folder / "metrics.jsonl").read_bytes().splitlines()
    return [parse_json(line, dict)[0] for line in lines]


def test_a_run_that_goes_on_drops_later_lines_and_one_cut_short(tmp_path):
    writer = MetricsWriter(tmp_path, 0)
    for step in (10, 20, 30):
        writer.write(step, "train", {"loss": step / 10})
    writer.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 20, "split": "tr')
    writer = MetricsWriter(tmp_path, 20)
    writer.write(25, "train", {"loss": 2.5})
    writer.close()
    assert [line["step"] for line in logged(tmp_path)] == [10, 20, 25]


def test_what_is_not_finite_becomes_null(tmp_path):
    writer = MetricsWriter(tmp_path, 0)
    writer.write(1, "train", {"loss": float("nan"), "nll": float("inf"), "accuracy": 0.5})
    writer.close()
    assert logged(tmp_path) == [
        {"step": 1, "split": "train", "loss": None, "nll": None, "accuracy": 0.5}
    ]


# -- TensorBoard


def events(folder) -> list[Event]:
    """The events of the one file of TensorBoard, without their times."""
    [path] = folder.glob("events.out.tfevents.*")
    data, found = path.read_bytes(), []
    while data:
        (size,) = struct.unpack_from("Q", data)
        found.append(Event.FromString(data[12 : 12 + size]))
        found[-1].wall_time = 0
        data = data[12 + size + 4 :]
    return found


@pytest.mark.parametrize("step", [0, 20])
def test_tensorboard_gets_what_its_own_writer_writes(tmp_path, step):
    (tmp_path / "ours").mkdir()
    ours = MetricsWriter(tmp_path / "ours", step)
    theirs = SummaryWriter(str(tmp_path / "theirs"), purge_step=step + 1)
    for values in ({"loss": 2.5, "nll": math.nan}, {"loss": 2.25}):
        step += 10
        ours.write(step, "train", values)
        for name, value in values.items():
            theirs.add_scalar(f"train/{name}", value, step)
    ours.close()
    theirs.close()
    found = events(tmp_path / "ours")
    assert [str(event) for event in found] == [str(event) for event in events(tmp_path / "theirs")]
    assert [event.step for event in found[-3:]] == [step - 10, step - 10, step]


@pytest.mark.full
def test_a_training_does_not_import_pytorch_but_leaves_it_to_others(tmp_path):
    (tmp_path / "torch.py").write_text("print('imported')\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import transformer.training.run\n"
        "print('torch' in sys.modules, 'tensorboardX' in sys.modules); import torch"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "False True\nimported\n", done.stderr


def test_the_interval_of_a_loss_is_that_of_resampled_rows():
    rng = np.random.default_rng(3)
    tokens = rng.integers(5, 40, 211)
    nll = tokens * rng.normal(2.0, 0.5, 211)
    found = loss_intervals(nll, tokens, 2000)
    # The error of a ratio of means, by the delta method.
    mean = nll.sum() / tokens.sum()
    error = np.std(nll - mean * tokens) / tokens.mean() / math.sqrt(len(tokens))
    assert found["loss_ci"] == found["nll_ci"] == pytest.approx(1.96 * error, rel=0.1)
    assert found["perplexity_ci"] == pytest.approx(math.exp(mean) * found["nll_ci"], rel=0.05)
    assert loss_intervals(nll, tokens, 0) == loss_intervals(nll[:1], tokens[:1], 50) == {}
    assert loss_intervals(nll, tokens, 1) == {}
    assert loss_intervals(2.0 * tokens, tokens, 50)["loss_ci"] == pytest.approx(0, abs=1e-9)
    assert loss_intervals(nll[:3], tokens[:3], 50) == {}
    # Five captions of a picture that are equal are one text and not five.
    five = [np.repeat(values, 5) for values in (nll, tokens)]
    pictures = np.repeat(np.arange(211), 5).tolist()
    assert loss_intervals(*five, 2000, pictures)["nll_ci"] == pytest.approx(found["nll_ci"])
    assert loss_intervals(*five, 2000)["nll_ci"] < 0.5 * found["nll_ci"]


def test_counts_of_a_sentence_are_those_of_a_hand_count():
    counts = corpus_scores(["a b c x e"], ["a b c d e f"], final=True)["counts"]
    # Words a, b, c, e; pairs ab, bc; the triple abc.
    assert counts["bleu"].tolist() == [[5, 6, 4, 2, 1, 0, 5, 4, 3, 2]]
    assert counts["exact_match"].tolist() == [[0, 1]]
