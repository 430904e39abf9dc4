"""Tables for a run's report: scores, cost, data, config and environment."""

import json
import shlex
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from ml_collections import ConfigDict

from transformer import tasks
from transformer.config import default_config, flatten
from transformer.config.keys import KEYS, having
from transformer.data.held_out import is_split
from transformer.files import LAUNCH
from transformer.metrics.registry import COUNTS
from transformer.runs.run import start_line
from transformer.runs.upgrades import upgrade_search
from .table import Table, with_interval
from .tasks import NO_KINDS, REGISTRY, Measure

SECONDS = Measure("seconds", "seconds to score", format=",.1f")
DECODE, START = "decode", "init_from"  # keys of results.json
# Names of evaluations on generated lines, which are also the keys of their results.
GENERATED = BEHAVIOUR, CONTRASTS = "behaviour", "contrasts"
MARKS = {"±": "± is half a 95% bootstrap interval", "(": "brackets have a 95% interval (Wilson)"}


def rows_of(results: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the scores of each split."""
    return {name: scores for name, scores in results.items() if is_split(name)}


def main_split(results: dict[str, Any]) -> str:
    """Returns the split by which a run is judged: `test`, or else the first split with scores."""
    return "test" if "test" in results else next(filter(is_split, results))


def main_score(task: str, results: dict[str, Any]) -> str:
    """Returns a sentence that states a run's main score and the score's confidence interval."""
    split, measures = main_split(results), REGISTRY[task]
    measure, metric = measures.main, measures.metric(measures.main_metric)
    scores = results[split]
    text, unknown = _cell(measure, scores), scores.get("no_interval", "no interval is known")
    count = next((f"{scores[name]:,} {name}" for name in COUNTS if name in scores), None)
    if count is None:  # a classifier, which counts texts by class
        count = f"{sum(each['texts'] for each in scores['classes'].values()):,} texts"
    sure = next((about for mark, about in MARKS.items() if mark in text), unknown)
    title, unit = metric.title[0].upper() + metric.title[1:], metric.unit
    return f"{title} {text}{unit} on the {count} of the {split} set; {sure}."


def score_table(task: str, results: dict[str, Any]) -> Table:
    """Returns a table with a row for each score, main metrics first, and a column per split."""
    splits = rows_of(results)
    names = dict.fromkeys(
        name
        for scores in splits.values()
        for name, value in scores.items()
        if isinstance(value, int | float) and not name.endswith(NO_KINDS)
    )
    columns = [REGISTRY[task].main, *REGISTRY[task].further([results])]
    shown = {each.name: each for each in columns if each.path.startswith("test.")}
    for name in names:  # with scores that are not in sweep tables
        shown.setdefault(name, REGISTRY[task].measure(name))
    shown[SECONDS.name] = SECONDS
    rows = [
        [measure.title, *(_cell(measure, scores) for scores in splits.values())]
        for name, measure in shown.items()
        if name in names
    ]
    caption = f"Scores; {', '.join(MARKS.values())} over the sentences or texts"
    return Table(caption, ["score", *splits], rows)


def behaviour_table(results: dict[str, Any]) -> Table | None:
    """Returns a table of pass rates on generated lines, or None if there are none."""
    name = CONTRASTS if CONTRASTS in results else BEHAVIOUR
    rows = [
        [check, f"{rate['lines']:,}", f"{rate['passed'] / rate['lines']:.1%}"]
        + [f"{rate['low']:.1%} to {rate['high']:.1%}"]
        for check, rate in results.get(name, {}).items()
    ]
    head = ["check", "lines", "passed", "95% interval (Wilson)"]
    return Table(f"{name.capitalize()} at generated lines", head, rows) if rows else None


def signatures(results: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns (metric, signature) pairs of the main split; equal signatures are comparable."""
    end, scores = "_signature", results[main_split(results)]
    return [(name.removesuffix(end), text) for name, text in scores.items() if name.endswith(end)]


def decode_of(settings: ConfigDict, results: dict[str, Any]) -> Any:
    """Returns the `config.decode` of the final scores, which may differ from `settings`."""
    return ConfigDict({**settings, **upgrade_search({**results.get(DECODE, {})})})


def decode_table(decode: ConfigDict, task: str) -> Table | None:
    """Returns a table of the search settings for translation, or None for other tasks."""
    if not tasks.REGISTRY[task].is_translated:
        return None
    values = {key: decode[key.partition(".")[2]] for key in having("search")}
    shown = {k: v for k, v in values.items() if k not in having("rare") or v != KEYS[k].default}
    rows = [[key, _shown(value)] for key, value in shown.items()]
    return Table("The search that made the scored translations", ["", ""], rows)


def cost_table(results: dict[str, Any], unit: str) -> Table:
    """Returns a table of the cost of a run."""
    steps = sorted(results["averaged_steps"])
    listed = ", ".join(f"{step:,}" for step in steps)
    rows = [
        ["step", f"{results['step']:,}"],
        ["scored weights", f"mean of steps {listed}" if steps[1:] else f"of step {listed}"],
        ["parameters", f"{results['parameters']:,}"],
        ["time of the run", str(timedelta(seconds=round(results["wall_seconds"])))],
    ]
    if start := results.get(START):
        rows.append(["first weights", start_line(start)])
    if speed := results.get("tokens_per_second"):
        rows.append([f"{unit} per second during training", f"{speed:,.0f}"])
    if work := results.get("flops_per_token"):
        rows.append(["training FLOPs per token, without those of attention", f"{work:,}"])
    return Table("Cost of the run", ["", ""], rows)


def class_table(scores: dict[str, Any]) -> Table | None:
    """Returns a table of per-class precision, recall, F1 and AUC, or None for other tasks."""
    if "classes" not in scores:
        return None
    rows = [
        [label, *(f"{100 * own[name]:.1f}" for name in ("precision", "recall", "f1"))]
        + [f"{100 * own['auc']:.1f}" if "auc" in own else "", f"{own['texts']:,}"]
        for label, own in scores["classes"].items()
    ]
    head = ["class", "precision (%)", "recall (%)", "F1 (%)", "AUC (%)", "texts"]
    return Table("Classes", head, rows)


# -- text


def data_tables(data: dict[str, Any]) -> list[Table]:
    """Returns tables of the data: cleaning, pairs per corpus, text per split, tokens, batches."""
    tables, splits = [], data["splits"]
    if cleaning := data.get("cleaning"):
        read = cleaning["read"]
        counts = {"read": read, **cleaning["dropped"], "kept": cleaning["kept"]}
        rows = [[name, f"{n:,}", f"{n / max(1, read):.2%}"] for name, n in counts.items()]
        head = ["pairs", "number", "fraction"]
        tables.append(Table("Cleaning of the training text", head, rows))
    if corpora := data.get("corpora"):
        reasons = dict.fromkeys(reason for each in corpora.values() for reason in each["dropped"])
        counts = {"read": [each["read"] for each in corpora.values()]}
        counts |= {r: [each["dropped"].get(r, 0) for each in corpora.values()] for r in reasons}
        counts["kept"] = [each["kept"] for each in corpora.values()]
        counts["drawn per epoch"] = drawn = [each["drawn"] for each in corpora.values()]
        rows = [[name, *(f"{count:,}" for count in row)] for name, row in counts.items()]
        rows.append(["fraction of an epoch", *(f"{n / max(1, sum(drawn)):.2%}" for n in drawn)])
        tables.append(Table("Pairs of each corpus", ["", *corpora], rows))
    names = dict.fromkeys(name for counts in splits.values() for name in counts)
    rows = [[name, *(f"{counts.get(name, 0):,}" for counts in splits.values())] for name in names]
    tables.append(Table("Text of each split", ["", *splits], rows))
    rows = [[f"vocabulary, {side}", f"{n:,} pieces"] for side, n in data["vocabulary"].items()]
    rows.append(["unknown tokens of the training text", f"{data['oov_rate']:.3%}"])
    rows.append(["batches per epoch", f"{data['batches_per_epoch']:,}"])
    if "padding_fraction" in data:
        rows.append(["padding of them", f"{data['padding_fraction']:.1%}"])
    shapes = ", ".join(f"{rows} × {tokens}" for rows, tokens in data["shapes"])
    rows.append(["shapes, rows × tokens", shapes])
    return [*tables, Table("Tokens and batches", ["", ""], rows)]


# -- config and environment


def differing(config: ConfigDict) -> list[tuple[str, Any, Any]]:
    """Returns (key, value, default) for each key that differs from its default."""
    defaults = flatten(default_config())
    return [(k, v, defaults[k]) for k, v in flatten(config).items() if v != defaults[k]]


def config_table(keys: Iterable[tuple[str, Any, Any]]) -> Table:
    """Returns a table of the keys that `differing` returns."""
    rows = [[key, _shown(value), _shown(default)] for key, value, default in keys]
    return Table("Keys that differ from configs/base.py", ["key", "value", "default"], rows)


def command(keys: Iterable[tuple[str, Any, Any]]) -> str:
    """Returns the shell command that repeats the training, given the keys from `differing`."""
    flags = [shlex.quote(f"--config.{key}={_as_flag(value)}") for key, value, _ in keys]
    start = f"{LAUNCH} --config=configs/base.py --workdir=runs/again"
    return " \\\n    ".join([start, *flags])


def environment_table(environment: dict[str, Any]) -> Table:
    """Returns a table of the machine and the package versions at a run's last start."""
    devices, code = environment["devices"], environment["code"]
    commit = "no git checkout of its own"
    if code:
        commit = code["commit"] + (", with local changes" if code["changed"] else "")
    rows = [
        ["processor", f"{environment['processor']}, {environment['cores']} cores"],
        ["devices of jax", f"{devices['count']} × {devices['kind']}"],
        ["system", environment["platform"]],
        ["commit of the code", commit],
        ["python", environment["python"]],
        *([name, version] for name, version in environment["packages"].items()),
    ]
    return Table("Environment when the training was last started", ["", ""], rows)


def _cell(measure: Measure, scores: dict[str, Any]) -> str:
    value = scores.get(measure.name)
    if value is None:
        return ""
    if isinstance(value, int):  # a count
        return f"{value:,}"
    text = measure.show(value)
    return with_interval(text, scores.get(f"{measure.name}_ci"), measure.show)


def _shown(value: Any) -> str:
    return "''" if value == "" else _as_flag(value)


def _as_flag(value: Any) -> str:
    if not isinstance(value, list):
        return str(value)
    if value and isinstance(value[0], dict):
        return json.dumps(value, ensure_ascii=False)
    return ",".join("=".join(map(str, x)) if isinstance(x, list) else str(x) for x in value)
