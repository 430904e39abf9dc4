"""The behaviour suite and contrasts: the generated lines, and what passes their checks."""

import json
import shutil

import pytest
import regex

from experiments.evaluate import behaviour, evaluate
from experiments.evaluate.behaviour import check_behaviour, make_cases
from experiments.results.tasks import TRANSLATIONS
from tiny_run import command, refused
from transformer.data import held_out
from transformer.data.pairs import Pair
from transformer.data.synthetic.contrasts import Contrast, contrasts
from transformer.inference.translator import Translator
from transformer.runs import workdir
from transformer.runs.run import Run
from transformer.tasks.pair_scores import score_contrasts

PAIRS = [
    Pair(f"The {noun} does not sleep in Vienna.", f"{noun} schläft nicht in Wien.")
    for noun in ("dog", "cat", "bird", "fish", "horse")
]


@pytest.fixture
def folder(copy):
    """The shared run with other text in its test set, as of the grammar."""
    shutil.rmtree(copy / "held_out")
    held_out.save(copy, {"test": PAIRS})
    return copy


def run_of(folder, source="grammar"):
    config = workdir.load_config(folder).copy_and_resolve_references()
    config.data.source = source
    return Run(folder, config)


def checks(folder, translate) -> dict[str, tuple[int, int]]:
    """(passed, lines) of each check, if this function of a case translates."""
    texts = [translate(case) for case in make_cases(run_of(folder))]
    (folder / TRANSLATIONS).write_text("".join(f"{text}\n" for text in texts))
    found = check_behaviour(run_of(folder), folder)["behaviour"]
    assert all(own["low"] <= own["passed"] / own["lines"] <= own["high"] for own in found.values())
    return {check: (own["passed"], own["lines"]) for check, own in found.items()}


def test_a_translator_that_gives_the_references_passes_all_checks(folder):
    found = checks(folder, lambda case: case.pair.target)
    own = {check for check, (_, lines) in found.items() if lines == len(PAIRS)}
    assert own == {
        *("number kept", "placeholder kept", "name copied", "negation kept", "all sentences"),
        *("sentence thrice", "one word", "long word", "digits alone"),
    }
    assert all(passed == lines for passed, lines in found.values())
    assert (folder / "failures.tsv").read_text() == ""


@pytest.mark.parametrize(
    ("check", "translate", "passes"),
    [
        ("all sentences", lambda text: text.replace("Dr.", "Doctor"), True),  # it ends once less
        ("all sentences", lambda text: f"{text.replace('.', '')} ...", False),
        ("number kept", lambda text: regex.sub(r"(\d{2,})", r"1\1", text), False),
    ],
)
def test_a_check_passes_a_right_translation_alone(folder, check, translate, passes):
    shutil.rmtree(folder / "held_out")
    chinese = Pair("他在看书。", "Dr. Lee is reading a book in the garden.")
    held_out.save(folder, {"test": [chinese, chinese]})
    passed, lines = checks(folder, lambda case: translate(case.pair.target))[check]
    assert passed == lines * passes


def test_a_translator_that_copies_its_source_loops_or_writes_nothing_is_seen(folder):
    copied = checks(folder, lambda case: case.pair.source)
    assert copied["not the source"] == (15, 45)  # words and digits alone may be copied
    assert copied["number kept"] == copied["name copied"] == (5, 5)
    assert copied["negation kept"] == (0, 5)
    passed, lines = checks(folder, lambda case: " ".join([case.pair.target] * 4))["no loop"]
    assert passed < lines / 2
    empty = checks(folder, lambda case: "")
    assert empty["not empty"] == empty["number kept"][:1] + (45,) == (0, 45)


def test_lines_are_a_function_of_the_test_set_and_names_are_in_its_script(folder):
    assert make_cases(run_of(folder)) == make_cases(run_of(folder))
    shutil.rmtree(folder / "held_out")
    held_out.save(folder, {"test": [Pair("A dog sleeps.", "Собака спит в доме.")]})
    assert "name copied" not in {case.check for case in make_cases(run_of(folder))}


@pytest.mark.full
def test_evaluate_scores_the_lines_and_the_report_shows_the_checks(copy):
    flags = "--mode=evaluate", "--input=behaviour", f"--workdir={copy}"
    ended = command(*flags)
    assert ended.code == 0, ended.err
    assert "digits alone" in ended.out
    place = copy / "evaluations/behaviour"
    results = json.loads((place / "results.json").read_text())
    assert results["behaviour"]["one word"]["lines"] == 7
    assert command("--mode=report", f"--workdir={copy}").code == 0
    assert "Behaviour at generated lines" in (copy / "report.html").read_text()
    refused(*flags, "--references=x", says="--references=x is for another text")


class Scorer(Translator):
    """A model whose parameters are log-probabilities, times the intervention."""

    def score(self, variables, sources, targets):
        return ((variables["interventions"] * variables["params"][x], len(x)) for x in targets)


def test_a_contrast_passes_if_the_whole_right_translation_is_more_probable():
    params = {"a long right one": -4.0, "wrong": -5.0, "tie": -4.0, "short": -3.0}
    errors = [("number", "wrong"), ("case", "tie"), ("order", "short"), ("order", "wrong")]
    items = [Contrast(name, "a", "a long right one", wrong) for name, wrong in errors]
    model = Scorer.__new__(Scorer)
    rates = score_contrasts(model, {"params": params, "interventions": 1}, items)
    counts = {name: (rate["passed"], rate["lines"]) for name, rate in rates.items()}
    assert counts == {"number": (1, 1), "case": (0, 1), "order": (1, 2)}
    assert rates["order"]["low"] < 0.5 < rates["order"]["high"]
    changed = score_contrasts(model, {"params": params, "interventions": -1}, items)
    assert [rate["passed"] for rate in changed.values()] == [0, 0, 1]


@pytest.mark.full
def test_evaluate_scores_contrasts_and_refuses_them_for_another_text(copy, monkeypatch):
    flags = "--mode=evaluate", "--input=contrasts"
    refused(*flags, f"--workdir={copy}", says="config.data.source=grammar only, not for copy")
    monkeypatch.chdir(copy)
    for module in behaviour, evaluate:
        monkeypatch.setattr(module, "contrasts", lambda: contrasts(0, 23))
    ended = command(*flags, "--workdir=quickstart")
    assert "Contrasts at generated lines" in ended.out, ended.err
    results = json.loads((copy / "quickstart/evaluations/contrasts/results.json").read_text())
    assert {"number", "order", "tense", "negation", "case", "gender"} == {*results["contrasts"]}
    assert all(rate["passed"] > 0.8 * rate["lines"] for rate in results["contrasts"].values())
