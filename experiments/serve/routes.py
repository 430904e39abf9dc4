"""The API routes of a run, which plan requests and run batches with few static shapes.

The batch size is 1, or `ROWS` with padding. Each static length therefore has two programs, which
are compiled in advance.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from transformer.data.pictures.patches import SeenPicture, read_picture
from transformer.errors import UserError
from transformer.inference.base import static_length, static_lengths
from transformer.inference.confidence import FILE
from transformer.inference.interventions import select
from transformer.inference.pictures import Captioner, PictureClassifier
from transformer.model.build import has_cross_attention, has_heads
from transformer.operations import Operation, Plan, Program, Request
from transformer.runs.loaded import LoadedRun
from transformer.tasks import REGISTRY
from ..attention.draw import SIDES, live_example
from .schema import decode_pictures
from .serve import describe

# Batch size. On a CPU, it more than halves the time per text, and larger batches do not help.
ROWS = 8
# Maximum total tokens in a translation request. Time depends on the number of tokens, and a
# character of a script that is unknown to the model becomes up to four tokens.
MAX_REQUEST_TOKENS = 8_192
CONFIDENCE, ALIGN = "confidence", "align"  # operations that add to the best of translations
RESULTS = {  # operation of the server -> key of its results in a response
    "translate": "translations",
    CONFIDENCE: "translations",
    ALIGN: "translations",
    "score": "scores",
    "generate": "continuations",
    "classify": "classes",
    "caption": "captions",
}

ASKED = "next_tokens", "alternatives", "beam"  # methods of a run

Fields = Mapping[str, Any]  # non-null fields of a request


class RequestPlan(NamedTuple):
    """The items of a request, their batching groups, and a function that makes the response."""

    groups: Sequence[Hashable]
    items: Sequence[Any]
    answer: Callable[[list[Any]], dict[str, Any]]  # items' results -> response fields


class Route:
    """A route for an operation on texts, with up to `max_batch` items in a batch."""

    def __init__(self, operation: Operation):
        self.operation, self.name = operation, operation.name
        self.max_batch, self.max_best = operation.workers * ROWS, operation.max_best or ROWS
        self.programs = partial(operation.programs, ROWS)  # yields programs, shortest first

    def plan(self, fields: Fields) -> RequestPlan:
        """Plans a request without running the model; raises UserError if the request is invalid."""
        count = fields.get("num_best", 1)
        if not 1 <= count <= self.max_best:
            most = f"{self.max_best}, the most of this run"
            raise UserError(f"num_best={count} is not between 1 and {most}")
        plan, sizes = self._read(fields, count)
        most, over = self.operation.max_length, Counter()
        for number, size in zip(plan.numbers, sizes, strict=True):
            for side, tokens in zip(SIDES, size, strict=True):
                over[number, side] += max(0, tokens - most)

        def answer(results: list[Any]) -> dict[str, Any]:
            best = []
            for row in plan.join(results):
                row, more = row if self.name in (CONFIDENCE, ALIGN) else (row, None)
                best.append([each._asdict() for each in row])
                if more and self.name == CONFIDENCE:
                    best[-1][0] |= {"confidence": more.probability, "words": more.words}
                elif self.name == ALIGN:
                    best[-1][0]["links"] = more
            unread = [{side: over[i, side] for side in SIDES} for i in range(len(best))]
            if self.name in ("generate", "caption"):
                return {RESULTS[self.name]: best}
            if self.name == "score":
                return {"scores": [score for [score] in best], "unread": unread}
            return {RESULTS[self.name]: best, "unread": [sum(n.values()) for n in unread]}

        lengths = (static_length(min(max(size), most), most) for size in sizes)
        return RequestPlan([(length, count) for length in lengths], plan.items, answer)

    def _read(self, fields: Fields, count: int) -> tuple[Plan, list[tuple[int, int]]]:
        """Returns the plan for a request, and the (source, target) token counts of each item."""
        if "pictures" in fields:
            raise UserError("pictures is for models of pictures: leave it out")
        if "texts" not in fields:
            raise UserError("texts is missing: give it, see /openapi.json")
        texts, targets = fields["texts"], fields.get("targets", [])
        if self.operation.has_pairs:
            if len(texts) != len(targets):
                counts = f"targets has {len(targets)} texts, and texts has {len(texts)}"
                raise UserError(f"{counts}: give a translation of each of the texts")
            texts = list(zip(texts, targets, strict=True))
        elif "targets" in fields:
            raise UserError("targets is for translators: leave it out")
        tag, place = fields.get("source_tag"), "texts[{}]"
        limit, prefixes = MAX_REQUEST_TOKENS, fields.get("prefixes", ())
        request = Request(texts, count, tag, 0, place, max_tokens=limit, prefixes=prefixes)
        request = request._replace(glossary=fields.get("glossary", {}))
        plan = self.operation.plan(request)
        return plan, list(map(self.operation.measure, plan.items, map(place.format, plan.numbers)))

    def compute(self, group: tuple[int, int], items: list[Any]) -> list[Any]:
        """Returns the results of the items, which belong to one group."""
        rows = 1 if len(items) <= self.operation.workers else ROWS
        return self.operation.compute(items, group[1], rows=rows)


class PictureRoute(Route):
    """A route for image classification, or for questions about images."""

    def _read(self, fields: Fields, count: int) -> tuple[Plan, list[tuple[int, int]]]:
        if "pictures" not in fields:
            raise UserError("pictures is missing: give it, see /openapi.json")
        texts, pictures = fields.get("texts", []), fields["pictures"]
        model = self.operation.predictor
        asks = model.tokenizer is not None
        if len(texts) != asks * len(pictures):
            needed = "a question on each picture" if asks else "pictures alone"
            raise UserError(
                f"{len(pictures)} pictures, {len(texts)} texts: this run needs {needed}"
            )
        items = see(model, pictures, texts or [""] * len(pictures))
        unread = [model.unread(f"picture\t{text}") for text in texts or pictures]
        sizes = [(len(model.tokens_of(item)) + n, 0) for item, n in zip(items, unread, strict=True)]
        return Plan(items, range(len(items))), sizes

    def compute(self, group: tuple[int, int], items: list[Any]) -> list[Any]:
        model, variables = self.operation.predictor, self.operation.variables
        padded = items + items[-1:] * (ROWS - len(items) if len(items) > 1 else 0)
        return [best[: group[1]] for best in model.rank(variables, padded)[: len(items)]]


class CaptionRoute(Route):
    """A route for captions of images."""

    def _read(self, fields: Fields, count: int) -> tuple[Plan, list[tuple[int, int]]]:
        names = receive(self.operation.predictor, fields["pictures"])
        request = Request(names, count, first=0, prefixes=fields.get("prefixes", ()))
        return self.operation.plan(request), [(self.operation.max_length, 0)] * len(names)


def receive(predictor: Captioner, urls: list[str], place: str = "pictures[{}]") -> list[str]:
    """Returns names of images for a captioner; images are data URLs, never file names."""
    return [predictor.source_tokenizer.receive(*each) for each in decode_pictures(urls, place)]


def see(
    predictor: PictureClassifier, urls: list[str], questions: list[str], place: str = "pictures[{}]"
) -> list[SeenPicture]:
    """Returns model inputs for images and questions; images are data URLs, never file names."""
    pictures = decode_pictures(urls, place)
    for (_, name), question in zip(pictures, questions, strict=True):
        if predictor.tokenizer and not question.strip():
            raise UserError(f"{name} has no question: give one as its text")
    pixels = [read_picture(data, *predictor.look, name=name) for data, name in pictures]
    return list(map(predictor.see, pixels, questions))


class Ask:
    """A route for a method of the run that answers a single request."""

    max_batch = 1
    programs = tuple  # no programs: they are compiled on demand

    def __init__(self, run: LoadedRun, name: str):
        self.run, self.name = run, name

    def plan(self, fields: Fields) -> RequestPlan:
        """Plans a request; the only item is a function that calls the method."""
        arguments = {name: value for name, value in fields.items() if name != "run"}
        many, predictor = self.name == "next_tokens", self.run.trained.predictor
        text, picture = ("texts", "pictures") if many else ("text", "picture")
        if isinstance(predictor, Captioner):
            urls = arguments.pop(picture, [] if many else "")
            names = receive(predictor, urls) if many else receive(predictor, [urls], picture)
            arguments[text] = names if many else names[0]
        elif picture in fields:
            raise UserError(f"{picture} is for models of pictures: leave it out")
        elif text not in fields:
            raise UserError(f"{text} is missing: give it, see /openapi.json")
        call = partial(getattr(self.run, self.name), **arguments)
        size = self.run.config.decode.beam_size
        key, more = ("steps", {"beam_size": size}) if self.name == "beam" else (self.name, {})
        return RequestPlan([None], [call], lambda results: {key: _plain(results[0]), **more})

    def compute(self, group: None, items: list[Callable[[], Any]]) -> list[Any]:
        """Returns the result of each item."""
        return [call() for call in items]


def _plain(value: Any) -> Any:
    """Returns a result as JSON-compatible data: named tuples as objects, and arrays as lists."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    value = value.tolist() if isinstance(value, np.ndarray) else value
    return [_plain(each) for each in value] if isinstance(value, list) else value


class Explain(Ask):
    """A route for the attention of all heads over a text, or over an image and a question."""

    def __init__(self, run: LoadedRun, max_length: int):
        super().__init__(run, "attention")
        self.max_length = max_length
        self.predictor, self.variables = run.trained.predictor, run.trained.variables

    def programs(self) -> Iterator[Program]:
        """Yields the programs to compile, shortest length first."""
        for length in static_lengths(self.max_length):
            yield length, partial(self.predictor.prepare_attention, self.variables, length)

    def plan(self, fields: Fields) -> RequestPlan:
        """Plans a request; the plan's only item is a function that computes the attention."""
        if isinstance(self.predictor, PictureClassifier):
            text = fields["text"]
            if {"target", "source_tag"} & fields.keys():
                raise UserError("target and source_tag are for translators: leave them out")
            [item] = see(self.predictor, [fields.get("picture", "")], [text], "picture")
            unread = self.predictor.unread(f"picture\t{text}")
            explain = partial(self.predictor.attention_of, self.variables, item, unread)
        else:
            [explain] = super().plan(fields).items
        return RequestPlan([None], [lambda: live_example(explain())], lambda results: results[0])


class Intervene(Ask):
    """A route for the best result for a text while the model is changed; see `interventions`."""

    def plan(self, fields: Fields) -> RequestPlan:
        request = Request([fields["text"]], 1, fields.get("source_tag"), 0, "text")

        def answer() -> Any:
            with self.run.intervene(fields["changes"], fields["text"]):
                return self.run.operation(self.name).answer(request)[0]

        return RequestPlan([None], [answer], lambda results: {"intervene": _plain(results[0])})


class Served:
    """A run with its routes; the first route generates text or classifies."""

    def __init__(self, name: str, run: LoadedRun):
        self.name, self.run, predictor = name, run, run.trained.predictor
        sees, captions = (isinstance(predictor, x) for x in (PictureClassifier, Captioner))
        reads = not captions and (not sees or predictor.tokenizer is not None)
        self._inputs = ["picture"] * (sees or captions) + ["text"] * reads
        methods = REGISTRY[run.config.task].operations
        operations = [run.operation(each) for each in methods if each in RESULTS]
        route = PictureRoute if sees else CaptionRoute if captions else Route
        self.routes: dict[str, Any] = {each.name: route(each) for each in operations}
        self._first = next(iter(self.routes.values()))
        asked = ASKED + ("lens",) * has_heads(run.config.model)
        self.routes |= {name: Ask(run, name) for name in asked if name in methods}
        if has_heads(run.config.model) or has_cross_attention(run.config.model):
            self.routes["attention"] = Explain(run, operations[0].max_length)
        self._heads = []
        if has_heads(run.config.model) and self._inputs == ["text"]:
            self.routes["intervene"] = Intervene(run, self._first.name)
            self._heads = select(["*.head.*.output"], predictor.model)

    def describe(self) -> dict[str, Any]:
        """Returns the run's description for `GET /api/runs`."""
        run = self.run
        return describe(self.name, run.folder, run.config, run.trained.steps) | {
            "inputs": self._inputs,
            "operations": [name for name in self.routes if name != CONFIDENCE],
            "heads": self._heads,
            "is_calibrated": CONFIDENCE in self.routes and (run.folder / FILE).exists(),
            "max_best": self._first.max_best,
            "max_length": self._first.operation.max_length,
        }
