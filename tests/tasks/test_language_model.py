"""A language model from a text file, through the command line."""

import contextlib
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from runs import toy_config
from tiny_language_model import CONFIG, LINES
from tiny_run import command, loading_once, refused, shared_folder, without_pictures
from transformer.runs import workdir
from transformer.runs.run import Run
from transformer.tasks.language_model import LanguageModelTask

RUNNING = ("tokenizer.kind=char", "tokenizer.keep_spaces=True", "data.documents=file")


def flags(changes):
    return [f"--config.{change}" for change in changes]


def train(folder: Path, text: str, *changes: str):
    (folder / "text").write_text(text)
    (folder / "config.py").write_text(CONFIG.replace("PATH", str(folder)))
    arguments = f"--config={folder / 'config.py'}", f"--workdir={folder / 'run'}"
    return command(*arguments, *flags(changes))


@pytest.fixture(scope="module", autouse=True)
def once():
    with loading_once():
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The runs of documents and of running text."""
    folders = {}
    for name, changes in {"lines": (), "running": RUNNING}.items():

        def fill(folder, changes=changes):
            with without_pictures() if changes else contextlib.nullcontext():
                ended = train(folder, "\n".join(LINES * 10) + "\n", *changes)
            assert ended.code == 0, ended.err
            assert ("it writes:" in ended.out) == (not changes)

        folders[name] = shared_folder(tmp_path_factory, f"model_of_{name}", fill) / "run"
    return folders


def use(folder, mode, *arguments, **options):
    return command(f"--workdir={folder}", f"--mode={mode}", *arguments, **options)


@pytest.mark.parametrize("name", ["lines", "running"])
def test_the_scores_are_one_likelihood_in_units_that_agree(trained, name):
    scores = json.loads((trained[name] / "results.json").read_text())["test"]
    text = "\n".join(LINES * 10) + "\n"
    held_out = {"lines": "\n".join(LINES) + "\n", "running": text[-int(0.1 * len(text)) :]}[name]
    words = len(held_out.split()) + (len(LINES) if name == "lines" else 0)
    nll = scores["nll"] * scores["tokens"]
    assert scores["perplexity"] == pytest.approx(math.exp(scores["nll"]), rel=1e-5)
    bits = nll / len(held_out.encode()) / math.log(2)
    assert scores["bits_per_byte"] == pytest.approx(bits, rel=0.01)
    assert scores["word_perplexity"] == pytest.approx(math.exp(nll / words), rel=0.05)
    for name in ("perplexity", "word_perplexity", "bits_per_byte"):
        assert scores[f"{name}_signature"].startswith("text:")
    # A token is another in another vocabulary; a word or a byte is not.
    assert "vocabulary:" in scores["perplexity_signature"]
    assert "vocabulary:" not in scores["bits_per_byte_signature"]


@pytest.mark.parametrize(("name", "pieces"), [("lines", 8), ("running", 9)])
def test_the_likelihoods_kept_of_pieces_are_what_the_scores_sum(trained, name, pieces):
    scores = json.loads((trained[name] / "results.json").read_text())["test"]
    lines = (trained[name] / "likelihoods/test.tsv").read_text().splitlines()
    log_probs, tokens, _, texts = zip(*(line.split("\t") for line in lines), strict=True)
    assert len(lines) == pieces
    assert sum(map(int, tokens)) == scores["tokens"]
    nll = scores["nll"] * scores["tokens"]
    assert -sum(map(float, log_probs)) == pytest.approx(nll, rel=1e-3)
    if name == "lines":
        assert list(texts) == LINES
    else:
        assert "⏎".join(LINES) in "".join(texts)


def test_compare_counts_the_bytes_of_the_scores_if_documents_are_cut(trained):
    documents = [" ".join((LINES * 2)[:13]), LINES[0]]
    config = workdir.load_config(trained["lines"])
    config.data.context = 12
    task = LanguageModelTask.from_folder(trained["lines"], config, documents)
    params = Run(trained["lines"]).load_trained().variables["params"]
    scores = task.evaluate(params, "test", final=True)
    assert len(scores["counts"]["nll"]) > 4  # rows have 12 tokens
    bits, size = scores["counts"]["bits_per_byte"].sum(0)
    nll, tokens = scores["counts"]["nll"].sum(0)
    assert size == task.text.held_out["test"].notes["bytes"] + 2 == sum(map(len, documents)) + 2
    assert bits / size == pytest.approx(scores["bits_per_byte"])
    assert nll / tokens == pytest.approx(scores["nll"])


def test_a_report_shows_first_what_the_model_predicts_worst(trained):
    page = (trained["running"] / "report.html").read_text()
    shown = [float(n) for n in re.findall(r"Piece \d+: perplexity ([\d.]+) over", page)]
    assert len(shown) == 6
    assert shown == sorted(shown, reverse=True)


def test_a_model_of_lines_knows_them(trained):
    scores = json.loads((trained["lines"] / "results.json").read_text())["test"]
    # Three of four tokens are one of two words, and the end is certain.
    assert scores["nll"] == pytest.approx(3 * math.log(2) / 4, abs=0.15)
    ended = use(trained["lines"], "score", stdin=b"one red cat\ncat red one\n")
    likely, unlikely = (float(line.split("\t")[0]) for line in ended.out.splitlines())
    assert likely == pytest.approx(-3 * math.log(2), abs=0.6)
    assert unlikely < likely - 5


def test_prompts_of_different_length_are_continued_each_in_its_line(trained):
    prompts = ["one", "", "two blue cat", "one red", "two"]
    stdin = "\n".join(prompts).encode()
    arguments = "--config.decode.temperature=0.5", "--config.decode.seed=3"
    written = use(trained["lines"], "generate", *arguments, stdin=stdin).out.splitlines()
    for prompt, text in zip(prompts, written, strict=True):
        assert text.startswith(prompt)
        assert len(text.split()) >= 2
    again = use(trained["lines"], "generate", *arguments, stdin=stdin).out.splitlines()
    assert again == written
    alone = use(trained["lines"], "generate", *arguments, "--prompt=one").out
    assert alone == written[0] + "\n"


def test_a_search_finds_the_most_probable_lines(trained):
    arguments = flags(["decode.search=beam", "decode.num_best=4", "decode.length_penalty=none"])
    ended = use(trained["lines"], "generate", *arguments, stdin=b"two\n")
    rows = [line.split("\t") for line in ended.out.splitlines()]
    assert sorted(text for *_, text in rows) == sorted(LINES[4:])
    scores = [float(score) for _, score, _ in rows]
    assert scores == sorted(scores, reverse=True)
    workdir_flag = f"--workdir={trained['running']}"
    arguments = "--mode=generate", "--prompt=one", "--config.decode.search=beam"
    refused(workdir_flag, *arguments, says="texts that end")
    many = flags(["decode.num_best=6", "decode.temperature=1.5"])  # more than a beam is wide
    lines = use(trained["lines"], "generate", *many, stdin=b"one\n").out.splitlines()
    assert ([line.split("\t")[0] for line in lines], len({*lines}) > 1) == (["1"] * 6, True)


@pytest.mark.full
def test_a_search_writes_as_many_new_tokens_as_greedy_sampling(trained):
    config = workdir.load_config(trained["lines"])
    config.decode.update({"beam_size": 1, "temperature": 0.0, "length_penalty": "none"})
    texts = {}
    for search in ("sample", "beam"):
        for most in (1, 2, 2**31 - 1):
            config.decode.update({"search": search, "max_new_tokens": most})
            run = Run(trained["lines"], config).load_trained()
            [[best], *_] = run.predictor.write(run.variables, ["one red", "two"])
            texts[search, most] = best.text
    assert len(texts["beam", 1].split()) == 3  # one more than the prompt
    for most in (1, 2, 2**31 - 1):
        assert texts["beam", most] == texts["sample", most]


def test_a_prompt_that_fills_the_context_cannot_be_searched(trained):
    line = b"one red cat two blue dog one red cat two blue"  # and begin-of-sentence
    beam = f"--workdir={trained['lines']}", "--mode=generate", "--config.decode.search=beam"
    refused(
        *beam, stdin=b"one\n" + line + b"\n", says="line 2 has 12 tokens, more than the 11 that"
    )
    assert use(trained["lines"], "generate", stdin=line + b"\n").code == 0  # the control


def test_the_end_of_a_text_is_shown_even_if_a_character_of_it_is_incomplete(trained, monkeypatch):
    run = Run(trained["lines"]).load_trained()
    predictor = run.predictor
    texts = {3: "one", 4: "one \ufffd", 5: "one é", 6: "one é\ufffd"}  # by the number of tokens
    monkeypatch.setattr(predictor.tokenizer, "decode", lambda ids: texts[len(ids)])
    monkeypatch.setattr(predictor, "read", lambda text, place: [1, 5, 5])
    monkeypatch.setattr(
        predictor._writer, "sample", lambda *arguments: iter([[[1] * n] for n in (4, 5, 6)])
    )
    assert list(predictor.stream(run.variables, "one")) == ["one", " é", "\ufffd"]


def test_running_text_goes_on_past_what_is_read_at_once(trained):
    arguments = "--config.decode.max_new_tokens=50", "--config.decode.temperature=0"
    text = use(trained["running"], "generate", *arguments, "--prompt=one red ").out
    assert len(text) == len("one red ") + 50 + 1
    assert text.count("\n") > 2
    ended = use(trained["running"], "generate", *arguments, stdin=b"one red \n")
    assert ended.out == text[:-1].replace("\n", "\\n") + "\n"


def test_attention_of_a_text_is_drawn_without_its_future(trained):
    for name, text in {"lines": "one red cat", "running": "one\nred"}.items():
        ended = use(trained[name], "attention", f"--sentence={text}")
        assert ended.code == 0, ended.err
        arrays = np.load(Path(ended.out.splitlines()[0]).parent / "attention.npz")
        weights = arrays["decoder_self"]
        assert weights.shape[:2] == (1, 2)
        read = list(arrays["target_tokens"])
        assert list(arrays["written_tokens"]) == [*read[1:], "(next)"]
        assert weights.shape[2] == len(read)
        np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-5)
        assert not np.triu(weights, 1).any()
        assert Path(ended.out.splitlines()[-1]).name == "explorer.html"
    arguments = "--mode=attention", "--sentence=one", "--hide_eos"
    refused(f"--workdir={trained['lines']}", *arguments, says="for translators")


@pytest.mark.parametrize(
    ("text", "changes", "says"),
    [
        ("", (), "is too short to hold out"),
        ("one red cat\n" * 30, ("data.validation_fraction=0",), "no validation text"),
        ("one red cat\n" * 30, ("model.max_length=5",), "context=12"),
    ],
    ids=str,
)
def test_a_text_or_config_that_cannot_be_learned_is_refused(tmp_path, text, changes, says):
    ended = train(tmp_path, text, *changes)
    assert ended.code == 2
    assert says in ended.err.splitlines()[-1]
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_batch_has_at_most_the_asked_sequences_and_its_shape_is_reported(tmp_path):
    changes = {"task": "language_model", "data.context": 16, "train.best_metric": "nll"}
    config = toy_config(tmp_path, **changes)
    many = LanguageModelTask(config)
    rows, length = many.plan[0].tokens.shape
    assert (rows > 3, length) == (True, 16)
    assert many.data_summary()["shapes"] == [[rows, length]]
    config.data.batch_sentences = 3
    few = LanguageModelTask(config, like=many)
    assert len(few.plan[0].tokens) <= 3
    # Held-out text is read as before.
    assert len(next(few.held_out_batches("validation")).tokens) == 13
