"""Shell, Python and HTTP give the same answers, and refuse the same requests with their place."""

import contextlib

import pytest
from serving import is_one_line, serving
from test_serve_pictures import QUESTION, as_url

import transformer
from experiments.serve.routes import RESULTS, Served
from source_settings import refused
from task_runs import train_tagged
from tiny_run import command


@pytest.fixture(scope="session")
def doors(loaded, site, scenes, tmp_path_factory):
    """A function of a task that returns its run and its server."""
    runs = {task: (run, site) for task, run in loaded.items()}
    with contextlib.ExitStack() as stack:

        def find(task):
            if task not in runs:
                folder = train_tagged(tmp_path_factory) if task == "tagged" else None
                run = transformer.load(folder / "workdir") if folder else scenes
                runs[task] = run, stack.enter_context(serving([Served(task, run)]))
            return runs[task]

        yield find


def shell(run, operation, texts, targets=None, num_best=None, source_tag=None):
    """Returns how a command ends."""
    lines = texts if targets is None else map("\t".join, zip(texts, targets, strict=True))
    flags = [] if num_best is None else [f"--config.decode.num_best={num_best}"]
    flags += [] if source_tag is None else [f"--source_tag={source_tag}"]
    stdin = "".join(f"{line}\n" for line in lines).encode()
    return command(f"--workdir={run.folder}", f"--mode={operation}", *flags, stdin=stdin)


def cells(operation, result, num_best):
    """What the shell writes for a result, after its number."""
    if operation == "score":
        return [f"{result.log_prob:.4f}", str(result.tokens)]
    if operation == "classify":
        return [result.label, f"{result.probability:.6f}"]
    has_score = num_best and result.score is not None
    return [f"{result.score:.4f}", result.text] if has_score else [result.text]


LONG = "a " * 40  # 41 tokens with its end, of which the translator reads 32
TEXTS = ["a b c", "", "b a", "d e f g h", LONG]
REVIEWS = ["the plot is superb .", "", "the cast is dull !", "the plot is superb . " * 4]
PAIRS = ["a b", "c d e", LONG, "a b"], {"targets": ["b a", "e", "a b", LONG]}
TAG = {"source_tag": "<2de>"}
# By name, the task, the operation, texts and options, and the tokens that are not read, if any.
CASES = {
    "translations": ("translation", "translate", TEXTS, {}),
    "best translations": ("translation", "translate", TEXTS, {"num_best": 3}),
    "scores of pairs": ("translation", "score", *PAIRS, [(0, 0), (0, 0), (9, 0), (0, 9)]),
    "scores": ("language_model", "score", ["one red cat", "two"], {}),
    "continuations": ("language_model", "generate", ["one", "two blue"], {}),
    "several continuations": ("language_model", "generate", ["one"], {"num_best": 2}),
    "classes": ("classification", "classify", REVIEWS, {}, [0, 0, 0, 9]),
    "best classes": ("classification", "classify", REVIEWS, {"num_best": 2}, [0, 0, 0, 9]),
    "answers": ("visual_question_answering", "classify", [QUESTION] * 2, {"num_best": 3}),
    "a tag": ("tagged", "translate", ["The dog.", "", "The dog. The cat."], TAG),
    "tags of texts": ("tagged", "translate", ["<2de> The dog.", "<2en> Der Hund."], {}),
    "a tag of pairs": ("tagged", "score", ["The dog."], TAG | {"targets": ["Der Hund."]}),
}


def of_tasks(cases):
    """The names of cases; the run with tags is trained for the full tests."""
    full = pytest.mark.full
    return [pytest.param(n, marks=full if case[0] == "tagged" else ()) for n, case in cases.items()]


@pytest.mark.parametrize("name", of_tasks(CASES))
def test_shell_python_and_http_give_the_same_answer(doors, photo, name):
    task, operation, texts, options, *unread = CASES[name]
    run, site = doors(task)
    fields = {"run": task, "texts": texts, **options}
    if task == "visual_question_answering":
        fields["pictures"] = [as_url(photo.read_bytes())] * len(texts)
        texts = [f"{photo}\t{text}" for text in texts]
    method, num_best = getattr(run, operation), options.get("num_best")
    if operation == "score":
        best = [[score] for score in method(texts, **options)]
    else:
        best = method(texts, **options | {"num_best": num_best or 1})
        firsts = [row[0][0] if row else "" for row in best]
        assert num_best or method(texts, **options) == firsts
    lines = []
    for number, row in enumerate(best, 1):
        rows = [cells(operation, each, num_best) for each in row] or [[""]]
        lines += ["\t".join(([str(number)] if num_best else []) + each) for each in rows]
    ended = shell(run, operation, texts, **options)
    assert (ended.code, ended.out.splitlines()) == (0, lines), ended
    answer = site.post(operation, fields).json()
    if operation == "generate":  # there, each prompt is alone
        best = [method([text], num_best=num_best or 1)[0] for text in texts]
    dicts = [[pytest.approx(each._asdict(), abs=1e-4) for each in row] for row in best]
    dicts = [row[0] for row in dicts] if operation == "score" else dicts
    assert answer[RESULTS[operation]] == dicts
    expected = unread[0] if unread else [(0, 0) if operation == "score" else 0] * len(texts)
    if operation == "score":
        expected = [{"source": source, "target": target} for source, target in expected]
    assert answer.get("unread", expected) == expected


REFUSALS = {  # the task, the operation, texts and options; what shell, Python and HTTP say
    "score an unknown word": (
        *("language_model", "score", ["one", "one zebra"], {}),
        *("line 2 has zebra", "line 2 has zebra", "texts[1] has zebra"),
    ),
    "a tag without tags": (
        *("translation", "translate", ["a"], TAG),
        *["source_tag=<2de> is for runs with tags, and no corpus of this one has any"] * 3,
    ),
    "no tag": (
        *("tagged", "translate", ["<2de> The dog.", "The dog."], {}),
        *("line 2 has no tag", "text 2 has no tag", "texts[1] has no tag"),
    ),
    "more translations than the beam has": (
        *("translation", "translate", ["a"], {"num_best": 9}),
        *("decode.num_best=9", "num_best=9 ", "num_best=9 is not between 1 and 4"),
    ),
    "an operation of another task": (
        *("classification", "generate", ["the plot"], {}),
        "--mode=generate is not for config.task=classification",
        "generate is for config.task=language_model: ",
        "classification has classify, attention, intervene, not generate",
    ),
}


@pytest.mark.parametrize("name", of_tasks(REFUSALS))
def test_shell_python_and_http_refuse_the_same_in_one_line(doors, name):
    task, operation, texts, options, *messages = REFUSALS[name]
    run, site = doors(task)
    ended = shell(run, operation, texts, **options)
    assert ended.code == 2, ended
    assert messages[0] in ended.err.splitlines()[-1]
    with refused(messages[1]):
        getattr(run, operation)(texts, **options)
    answer = site.post(operation, {"run": task, "texts": texts, **options})
    is_one_line(answer, 400, messages[2])
