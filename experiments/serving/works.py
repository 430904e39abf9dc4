"""The computations for each kind of request, in batches of few static shapes.

A batch has one row, or `ROWS` with padding. So there are two programs for each static length, and
they are compiled before they are needed. Samples are rows of their own, see `Generate`.
"""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from experiments.attention import explorer
from experiments.serving.batching import Item, Plan, Work
from transformer.api.run import METHODS, LoadedRun
from transformer.data.corpora.tags import Tagger, tags_of
from transformer.data.labelled.encode import read_texts
from transformer.errors import UserError
from transformer.inference.generator import Generator
from transformer.inference.groups import static_length, static_lengths, static_rows
from transformer.inference.segments import Segmenter, join
from transformer.inference.translator import Translator
from transformer.inference.workers import share
from transformer.model.build import has_cross_attention, has_heads

# Texts of a batch: on a CPU, each takes less than half of its time alone; more do not shorten it.
ROWS = 8
COMMON = 64  # tokens: programs for longer texts are compiled after the server is ready
# Tokens of all texts of a request to translate: they are what takes time, and a character of a
# script that the model does not know is up to four of them.
MAX_TOKENS = 8_192


class Program(NamedTuple):
    """A program to compile: for texts of `length` tokens, by `compile()`."""

    length: int
    compile: Callable[[], None]


class RunWork(Work):
    """A work of a run.

    Attributes:
      max_length: tokens of the longest text.
      max_best: how many results of a text may be asked for.
    """

    max_length: int
    max_best = 1
    most = ROWS

    def __init__(self, name: str, run: LoadedRun):
        self.run_name, self.run = name, run
        self.predictor, self.variables = run.trained.predictor, run.trained.variables

    def programs(self) -> Iterator[Program]:
        """Yields the programs that it needs, shortest first."""
        for length in static_lengths(self.max_length):
            for rows in (1, ROWS):
                yield Program(length, lambda rows=rows, length=length: self.prepare(rows, length))

    def prepare(self, rows: int, length: int) -> None:
        """Compiles its programs for batches of this number of rows of a static length."""

    def best(self, fields: Mapping[str, Any]) -> int:
        """Returns how many results of each text are asked for."""
        count = fields.get("num_best", 1)
        if not 1 <= count <= self.max_best:
            raise UserError(
                f"num_best={count} is not between 1 and {self.max_best}, the most of this run"
            )
        return count

    def tagged(self, texts: Sequence[str], fields: Mapping[str, Any]) -> list[str]:
        """Returns source texts with their tags, if the model has tags."""
        tag = Tagger(self.run.config.data, fields.get("source_tag"))
        return [tag(text, f"texts[{number}]") for number, text in enumerate(texts)]

    def group(self, tokens: int) -> int:
        """Returns the static length of a text of this number of tokens."""
        return static_length(min(tokens, self.max_length), self.max_length)

    def unread(self, tokens: int) -> int:
        """Returns how many of a text's tokens the model does not read."""
        return max(0, tokens - self.max_length)

    def answer(self, **values: Any) -> bytes:
        """Returns an answer as JSON."""
        return json.dumps({"run": self.run_name, **values}, ensure_ascii=False).encode()


def count_tokens(read: Callable[[str, str], Sequence[int]], texts: Sequence[str]) -> list[int]:
    """Returns how many tokens a language model reads of each text.

    Args:
      read: `Generator.read` or `read_prompt`, whose errors name the text.
    """
    return [len(read(text, f"texts[{number}]")) for number, text in enumerate(texts)]


def padded(payloads: list[Any]) -> list[Any]:
    """Returns payloads for a batch of one row or of ROWS."""
    return payloads if len(payloads) == 1 else payloads + payloads[-1:] * (ROWS - len(payloads))


class Translate(RunWork):
    """Translations; an item is a segment of a text, and a batch one per core."""

    name = "translate"

    def __init__(self, name: str, run: LoadedRun):
        super().__init__(name, run)
        self.max_length, self.max_best = self.predictor.max_length, run.config.decode.beam_size
        self._encode = self.predictor.source_tokenizer.encode
        self._split = Segmenter(run.config, run.folder, self._encode, self.max_length)
        self._workers, _ = share(self.variables, run.config.decode.batch_size)
        self.most = self._workers * ROWS

    def prepare(self, rows: int, length: int) -> None:
        self.predictor.prepare_rows(self.variables, rows, length)

    def plan(self, fields: Mapping[str, Any]) -> Plan:
        count = self.best(fields)
        sources = self.tagged(fields["texts"], fields)
        tokens = sum(map(len, self._encode(sources)))
        if tokens > MAX_TOKENS:
            raise UserError(
                f"texts has {tokens:,} tokens in all, more than {MAX_TOKENS:,}: send fewer or "
                "shorter texts at once"
            )
        texts = [self._split(text, number) for number, text in enumerate(sources, 1)]
        segments = [segment for own in texts for segment in own]
        lengths = [len(ids) + 1 for ids in self._encode(segments)]
        left = map(self.unread, lengths)
        unread = [sum(itertools.islice(left, len(own))) for own in texts]

        def finish(results: list[Any]) -> bytes:
            found = iter(results)
            best = [join([next(found) for _ in own], count)[:count] for own in texts]
            translations = [[each._asdict() for each in own] for own in best]
            return self.answer(translations=translations, unread=unread)

        return Plan(
            [Item(self.group(n), (s, count)) for n, s in zip(lengths, segments, strict=True)],
            finish,
        )

    def compute(self, group: int, payloads: list[tuple[str, int]]) -> list[Any]:
        rows = 1 if len(payloads) <= self._workers else ROWS
        texts, counts = zip(*payloads, strict=True)
        return self.predictor.translate(self.variables, texts, num_best=max(counts), rows=rows)


class Score(RunWork):
    """Log-probabilities of texts, or of targets given their texts."""

    name = "score"

    def __init__(self, name: str, run: LoadedRun):
        super().__init__(name, run)
        self._pairs = not isinstance(self.predictor, Generator)
        self.max_length = self.predictor.max_length if self._pairs else self.predictor.context

    def prepare(self, rows: int, length: int) -> None:
        rows = static_rows(rows, self.predictor.decode.batch_size)
        self.predictor.prepare_scores(self.variables, rows, length)

    def plan(self, fields: Mapping[str, Any]) -> Plan:
        texts, targets = fields["texts"], fields.get("targets")
        sources = self.tagged(texts, fields)
        if self._pairs:
            if targets is None:
                raise UserError("targets is missing: give a translation of each of the texts")
            if len(targets) != len(texts):
                counts = f"targets has {len(targets)} texts, and texts has {len(texts)}"
                raise UserError(f"{counts}: give a translation of each of the texts")
            payloads = list(zip(sources, targets, strict=True))
            sides = (self.predictor.source_tokenizer, self.predictor.target_tokenizer)
            found = [
                each.encode(list(s)) for each, s in zip(sides, (sources, targets), strict=True)
            ]
            lengths = [(len(one) + 1, len(other) + 1) for one, other in zip(*found, strict=True)]
        else:
            if targets is not None:
                raise UserError("targets is for translators: leave it out")
            payloads = [(text,) for text in sources]
            lengths = [(0, length) for length in count_tokens(self.predictor.read, texts)]
        unread = [
            dict(zip(explorer.SIDES, map(self.unread, pair), strict=True)) for pair in lengths
        ]

        def finish(results: list[Any]) -> bytes:
            scores = [{"log_prob": log_prob, "tokens": tokens} for log_prob, tokens in results]
            return self.answer(scores=scores, unread=unread)

        groups = [self.group(max(pair)) for pair in lengths]
        return Plan([Item(*each) for each in zip(groups, payloads, strict=True)], finish)

    def compute(self, group: int, payloads: list[tuple[str, ...]]) -> list[Any]:
        columns = map(list, zip(*padded(payloads), strict=True))
        return list(self.predictor.score(self.variables, *columns))[: len(payloads)]


class Generate(RunWork):
    """Continuations of prompts: each is that of the prompt alone."""

    name = "generate"
    max_best = ROWS

    def __init__(self, name: str, run: LoadedRun):
        super().__init__(name, run)
        self.max_length, decode = self.predictor.context, run.config.decode
        self._counts: Sequence[int] = range(1, ROWS + 1)
        if decode.search == "beam":
            self.max_best = decode.beam_size
            # Padded prompts are searched a batch at a time; the last one may have fewer.
            self._counts = (1, min(ROWS, decode.batch_size), ROWS % decode.batch_size or 1)

    def programs(self) -> Iterator[Program]:
        """Yields the programs of all lengths at once, for each number of rows.

        Each sample is a row. So the page, which asks for up to `ROWS` samples of one text, needs
        all powers of two up to that. Several samples of several texts are compiled when they are
        asked for: their programs take more memory, and are rarely needed.
        """
        size = self.predictor.decode.batch_size
        for rows in dict.fromkeys(static_rows(count, size) for count in self._counts):
            yield Program(1, lambda rows=rows: self.predictor.prepare(self.variables, rows, 1))

    def plan(self, fields: Mapping[str, Any]) -> Plan:
        texts, count = fields["texts"], self.best(fields)
        lengths = count_tokens(self.predictor.read_prompt, texts)

        def finish(results: list[Any]) -> bytes:
            return self.answer(continuations=[[each._asdict() for each in own] for own in results])

        items = [Item((self.group(n), count), t) for n, t in zip(lengths, texts, strict=True)]
        return Plan(items, finish)

    def compute(self, group: tuple[int, int], payloads: list[str]) -> list[Any]:
        prompts = padded(payloads)
        numbers = [1] * len(prompts)
        found = self.predictor.write(self.variables, prompts, num_best=group[1], numbers=numbers)
        return found[: len(payloads)]


class Classify(RunWork):
    """The classes of texts with their probabilities."""

    name = "classify"

    def __init__(self, name: str, run: LoadedRun):
        super().__init__(name, run)
        self.max_length, self.max_best = self.predictor.max_tokens, len(self.predictor.labels)

    def prepare(self, rows: int, length: int) -> None:
        rows = static_rows(rows, self.predictor.batch_size)
        self.predictor.prepare_rows(self.variables, rows, length)

    def plan(self, fields: Mapping[str, Any]) -> Plan:
        texts, count = fields["texts"], self.best(fields)
        encoded = read_texts(texts, self.predictor.tokenizer)

        def finish(results: list[Any]) -> bytes:
            classes = [[each._asdict() for each in own[:count]] for own in results]
            return self.answer(classes=classes, unread=[self.unread(len(ids)) for ids in encoded])

        items = [Item(self.group(len(ids)), t) for ids, t in zip(encoded, texts, strict=True)]
        return Plan(items, finish)

    def compute(self, group: int, payloads: list[str]) -> list[Any]:
        return self.predictor.predict(self.variables, padded(payloads))[: len(payloads)]


class Explain(RunWork):
    """The attention of all heads over a text."""

    name = "attention"
    most = 1

    def __init__(self, name: str, run: LoadedRun):
        super().__init__(name, run)
        lengths = ("max_length", "context", "max_tokens")
        [self.max_length] = [
            getattr(self.predictor, each) for each in lengths if hasattr(self.predictor, each)
        ]

    def programs(self) -> Iterator[Program]:
        for length in static_lengths(self.max_length):
            yield Program(length, lambda length=length: self.prepare(1, length))

    def prepare(self, rows: int, length: int) -> None:
        self.predictor.prepare_attention(self.variables, length)

    def plan(self, fields: Mapping[str, Any]) -> Plan:
        tag = Tagger(self.run.config.data, fields.get("source_tag"))
        text = tag(fields["text"], "text")
        if "target" in fields and not isinstance(self.predictor, Translator):
            raise UserError("target is for translators: leave it out")
        if isinstance(self.predictor, Generator):
            self.predictor.read(text, "text")
        elif self.predictor.is_blank(text):
            raise UserError("text is blank: give one whose attention is to be seen")
        return Plan([Item(None, fields)], lambda results: self.answer(**results[0]))

    def compute(self, group: None, payloads: list[Mapping[str, Any]]) -> list[Any]:
        [fields] = payloads
        seen = self.run.attention(fields["text"], fields.get("target"), fields.get("source_tag"))
        return [explorer.live_example(seen)]


WORKS = {work.name: work for work in (Translate, Score, Generate, Classify)}


class Served:
    """A run with the work of each kind of request that it has."""

    def __init__(self, name: str, run: LoadedRun):
        self.name, self.run = name, run
        names = [each for each in METHODS[run.config.task] if each in WORKS]  # the first writes
        self.works: dict[str, RunWork] = {each: WORKS[each](name, run) for each in names}
        model = run.config.model
        if has_heads(model) or has_cross_attention(model):
            self.works[Explain.name] = Explain(name, run)

    def describe(self) -> dict[str, Any]:
        """Returns its description for `GET /api/runs`."""
        writes, tags = next(iter(self.works.values())), tags_of(self.run.config.data)
        return {
            "name": self.name,
            "task": self.run.config.task,
            "steps": list(self.run.trained.steps),
            "operations": list(self.works),
            "max_best": writes.max_best,
            "max_length": writes.max_length,
            "source_tags": list(tags) if any(tags) else [],
        }
