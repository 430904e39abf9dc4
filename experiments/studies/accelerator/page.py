"""The page of the accelerator study, with the records that hold for this device."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.planning.table import quantity
from experiments.studies.accelerator import figure
from experiments.studies.accelerator.parts import PARTS, read_record
from experiments.studies.accelerator.products import peak
from transformer.storage.files import write_text

PAGE, PICTURE = "docs/results/accelerator.md", "docs/images/accelerator.png"
Records = Mapping[str, dict[str, Any]]


def write(folder: Path, conditions: Mapping[str, Any]) -> Path:
    """Writes the page and its picture below a folder; returns the page's file.

    Args:
      conditions: of the records, and `platform`, `python` and `processor`.
    """
    records = {part.name: read_record(folder, part.name, conditions) for part in PARTS}
    drawn = figure.draw(_results(records), folder / PICTURE)
    path = folder / PAGE
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "\n".join(_lines(records, conditions, drawn)) + "\n")
    return path


def _results(records: Records) -> dict[str, Any]:
    return {name: own["result"] for name, own in records.items() if "result" in own}


def _lines(records: Records, conditions: Mapping[str, Any], drawn: bool) -> Iterator[str]:
    device, results = conditions["device"], _results(records)
    toy = " --toy" if conditions["toy"] else ""
    yield f"# On {device['count']} x {device['kind']}"
    yield ""
    yield from headline(results, conditions["toy"])
    yield from ("```", f"python -m experiments.studies.accelerator --out=DIR{toy}", "```", "")
    yield f"{_versions(conditions)}."
    if drawn:
        yield from ("", "![Speed by setting](../images/accelerator.png)")
    for part in PARTS:
        record = records[part.name]
        yield from ("", f"## {part.title}", "")
        if not record:
            yield "Not measured."
            continue
        if "result" in record:
            yield from SECTIONS[part.name](record["result"], results)
        if "error" in record:
            yield from ("", f"Not complete: {record['error']}.")
        yield from ("", f"Took {record['seconds']:.0f} s.")


def headline(results: Mapping[str, Any], toy: bool) -> Iterator[str]:
    """Yields the main result of the page, or that its numbers mean nothing."""
    if toy:
        yield from (
            "**Tiny models: these numbers show that the study runs, and nothing else.**",
            "",
        )
        return
    rows = [row for row in results.get("step", ()) if "error" not in row]
    if rows:
        best = max(rows, key=lambda row: row["flops_per_second"])
        fraction = _mfu(best, results)
        yield (
            f"**The {best['model']} model trains on {best['tokens_per_second']:,.0f} target tokens "
            f"per second ({best['dtype']}, {best['rows']} sentences of {best['length']} tokens; "
            f"MFU {fraction}).**"
        )
        yield ""


def _versions(conditions: Mapping[str, Any]) -> str:
    code = conditions["code"]
    commit = "of no checkout" if code is None else f"of commit {code['commit'][:7]}"
    changed = ", with changes" if code and code["changed"] else ""
    return (
        f"jax {conditions['jax']}, Python {conditions['python']}, {conditions['processor']}; code "
        f"{commit}{changed}"
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]], names: int = 1) -> list[str]:
    """Returns the lines of a table; all columns but the first `names` are aligned right."""
    rule = ["---"] * names + ["---:"] * (len(head) - names)
    lines = ([cell.replace("|", r"\|") for cell in cells] for cells in (head, rule, *rows))
    return [f"| {' | '.join(cells)} |" for cells in lines]


def _mfu(row: Mapping[str, Any], results: Mapping[str, Any]) -> str:
    """The fraction of the measured peak, or '-' if that is not known."""
    speed = peak(results.get("peak", ()), row["dtype"])
    return f"{row['flops_per_second'] / (speed * row['devices']):.1%}" if speed else "-"


def _peak(result: Any, results: Mapping[str, Any]) -> Iterator[str]:
    speeds = {(row["kind"], row["size"]): row["flops_per_second"] for row in result}
    kinds, sizes = (list(dict.fromkeys(own)) for own in zip(*speeds, strict=True))
    head = ("", *(f"{size} x {size}" for size in sizes))
    rows = [
        (
            kind,
            *(quantity(speeds[kind, n], "FLOP/s") if (kind, n) in speeds else "-" for n in sizes),
        )
        for kind in kinds
    ]
    yield from table(head, rows)
    yield ""
    yield (
        "Square matrices, in chains within one program; the larger number is the denominator of "
        "MFU below. float32 is multiplied as models do it by default, on Nvidia's GPUs as TF32."
    )


def _step(result: Any, results: Mapping[str, Any]) -> Iterator[str]:
    head = ("model", "dtype", "batch", "compile, s", "step, ms", "tokens/s", "speed", "MFU")
    yield from table((*head, "program", "device"), _step_rows(result, results, ()), 3)
    yield ""
    yield (
        "Tokens are those of the target; the batch is sentences x tokens of each side, all full. "
        "FLOPs are six times the weights that a token is multiplied with (Kaplan et al. 2020), so "
        "attention's own products are not counted. Memory: of the compiled program, and the most "
        "that the device has held since the part began."
    )


def _step_rows(
    result: Any, results: Mapping[str, Any], extra: Sequence[str]
) -> list[tuple[str, ...]]:
    rows = []
    for row in result:
        setting = *(f"{row[key]:,}" for key in extra), row["model"], row["dtype"]
        if "error" in row:
            rows.append((*setting, str(row["length"]), row["error"], *[""] * 6))
            continue
        rows.append(
            (
                *setting,
                f"{row['rows']} x {row['length']}",
                f"{row['compile_seconds']:.1f}",
                f"{row['step_ms']:.1f}",
                f"{row['tokens_per_second']:,.0f}",
                quantity(row["flops_per_second"], "FLOP/s"),
                _mfu(row, results),
                quantity(row["program_bytes"], "B"),
                "-" if row["device_bytes"] is None else quantity(row["device_bytes"], "B"),
            )
        )
    return rows


def _chunks(result: Any, results: Mapping[str, Any]) -> Iterator[str]:
    head = ("logits", "model", "dtype", "batch", "compile, s", "step, ms", "tokens/s", "speed")
    rows = _step_rows(result, results, ("logits",))
    yield from table((*head, "MFU", "program", "device"), rows, 4)
    yield ""
    yield "Logits: how many are held at a time, `CHUNK_LOGITS` of `transformer/losses.py`."


def _tests(result: Any, results: Mapping[str, Any]) -> Iterator[str]:
    counts = {key: sum(row[key] for row in result) for key in ("passed", "failed", "skipped")}
    yield f"{', '.join(f'{count} {key}' for key, count in counts.items())} in {len(result)} files."
    if failures := [failure for row in result for failure in row["failures"]]:
        yield ""
        for failure in failures:
            yield f"- `{failure['test']}`: {_code(failure['message'])}"


def _code(text: str) -> str:
    """A text within backquotes, which it may not have itself."""
    return f"`{text.replace('`', chr(39))}`"


def _together(result: Any, results: Mapping[str, Any]) -> Iterator[str]:
    rows = [
        (
            str(row["runs"]),
            f"{row['vmap_seconds']:.2f}",
            f"{row['sequential_seconds']:.2f}",
            f"{row['speedup']:.2f}",
        )
        for row in result
    ]
    yield from table(("runs", "vmap, s", "sequential, s", "speed-up"), rows, 0)
    yield ""
    yield (
        f"Seconds of {result[0]['steps']} steps of each run of the quickstart, without "
        "compilation; sequential runs share one compiled step. For a CPU see "
        "[many runs](many_runs.md)."
    )


def _decoding(result: Any, results: Mapping[str, Any]) -> Iterator[str]:
    rows = [
        (
            row["dtype"],
            f"{row['compile_seconds']:.1f}",
            f"{row['sentences_per_second']:,.1f}",
            f"{row['tokens_per_second']:,.0f}",
            f"{row['tokens_per_sentence']:.1f}",
        )
        for row in result
    ]
    head = ("dtype", "compile, s", "sentences/s", "tokens/s", "tokens per translation")
    yield from table(head, rows)
    yield ""
    first = result[0]
    yield (
        f"The base model, untrained: beam {first['beam']}, {first['sentences']} sentences of "
        f"{first['length']} tokens at once, and translations of up to as many. Without splitting "
        "into subwords and joining them."
    )


def _multi30k(result: Any, results: Mapping[str, Any]) -> Iterator[str]:
    [found] = result
    best, limit = found["best"], f"the training had {found['limit_seconds']:.0f} s"
    if best:
        yield (
            f"Best BLEU on validation {best['bleu']:.2f}, after {best['step']:,} steps and "
            f"{best['seconds']:.0f} s, compilation and evaluations included; {limit}. BLEU on "
            "validation is that of greedy search on the first 500 sentences."
        )
        yield ""
    if "test" in found:
        yield f"{found['step']:,} steps took {found['wall_seconds']:.0f} s."
        yield ""
        rows = [(name, f"{value:,.4g}") for name, value in found["test"].items()]
        yield from table(("test_2016_flickr", ""), rows)
        yield ""
    course = [
        (f"{own['step']:,}", f"{own['seconds']:.0f}", f"{own['bleu']:.2f}")
        for own in _spread(found["course"])
    ]
    yield from table(("step", "seconds", "BLEU on validation"), course, 0)


def _spread(course: Sequence[Any], count: int = 10) -> list[Any]:
    """Up to `count` of the evaluations, evenly spread, the last one among them."""
    every = -(-len(course) // count) or 1
    return list(course[::-1][::every][::-1])


def _twice(result: Any, results: Mapping[str, Any]) -> Iterator[str]:
    steps, arrays = result["steps"], result["arrays"]
    if not result["different"]:
        yield (
            f"Two starts of {steps} steps of the quickstart end with the same bits: all {arrays} "
            "arrays of parameters and optimizer state."
        )
        return
    yield (
        f"After {steps} steps of the quickstart, {result['different']} of {arrays} arrays differ "
        f"between two starts, by {result['difference']:.3g} at most (`{result['name']}`)."
    )


SECTIONS: dict[str, Callable[[Any, Mapping[str, Any]], Iterator[str]]] = {
    "peak": _peak,
    "step": _step,
    "multi30k": _multi30k,
    "tests": _tests,
    "together": _together,
    "decoding": _decoding,
    "twice": _twice,
    "chunks": _chunks,
}
