"""The operations of a run: each plans a request, and computes batches of few static shapes.

A batch has one row, or `ROWS` with padding. So there are two programs for each static length, and
they are compiled before they are needed. Samples are rows of their own, see `Generate`.
"""

import itertools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from experiments.attention.explorer import SIDES, live_example
from experiments.serve.schema import decode_pictures
from transformer.data.corpora import Tagger, languages_of, tags_of
from transformer.data.labelled.encode import read_texts
from transformer.data.pictures.encode import SeenPicture
from transformer.data.pictures.files import read_picture
from transformer.errors import UserError
from transformer.inference.batching import share, static_length, static_lengths, static_rows
from transformer.inference.generator import Generator
from transformer.inference.pictures import PictureClassifier
from transformer.inference.segments import Layout, Segmenter, join_segments
from transformer.inference.translator import Translator
from transformer.model.build import has_cross_attention, has_heads
from transformer.runs.loaded import METHODS, LoadedRun
from transformer.runs.workdir import load_config

# Texts of a batch: on a CPU, each takes less than half of its time alone; more do not shorten it.
ROWS = 8
# Tokens of all texts of a request to translate: they are what takes time, and a character of a
# script that the model does not know is up to four of them.
MAX_REQUEST_TOKENS = 8_192

Fields = Mapping[str, Any]  # of a request, without those that are null
Program = tuple[int, Callable[[], None]]  # for texts of a number of tokens, and compiles it


class RequestPlan(NamedTuple):
    """A request's items, of which those of a group can be computed together, and its answer."""

    groups: Sequence[Hashable]
    payloads: Sequence[Any]
    answer: Callable[[list[Any]], dict[str, Any]]  # its fields, given the results of the items


class Operation:
    """What a run does with the texts of a request."""

    name: ClassVar[str]
    max_batch = ROWS  # items that are computed together
    max_length: int  # tokens of the longest text
    max_best = 1  # results of a text that may be asked for

    def __init__(self, run: LoadedRun):
        self.run = run
        self.predictor, self.variables = run.trained.predictor, run.trained.variables

    def programs(self) -> Iterator[Program]:
        """Yields the programs that it needs, shortest first."""
        for length in static_lengths(self.max_length):
            for rows in (1, ROWS):
                yield length, lambda rows=rows, length=length: self.prepare(rows, length)

    def prepare(self, rows: int, length: int) -> None:
        """Compiles its programs for batches of this number of rows of a static length."""

    def plan(self, fields: Fields) -> RequestPlan:
        """Returns the plan of a request, or raises a UserError; does not use the model."""
        raise NotImplementedError

    def compute(self, group: Any, payloads: list[Any]) -> list[Any]:
        """Returns the result of each payload, which does not depend on the others."""
        raise NotImplementedError

    def best(self, fields: Fields) -> int:
        """Returns how many results of each text are asked for."""
        count = fields.get("num_best", 1)
        if 1 <= count <= self.max_best:
            return count
        most = f"{self.max_best}, the most of this run"
        raise UserError(f"num_best={count} is not between 1 and {most}")

    def tag(self, fields: Fields) -> list[str]:
        """Returns the source texts, with their tags if the model has any."""
        tag = Tagger(self.run.config.data, fields.get("source_tag"))
        return [tag(text, f"texts[{number}]") for number, text in enumerate(fields["texts"])]

    def group(self, tokens: int) -> int:
        """Returns the static length of a text of this number of tokens."""
        return static_length(min(tokens, self.max_length), self.max_length)

    def unread(self, tokens: int) -> int:
        """Returns how many of a text's tokens the model does not read."""
        return max(0, tokens - self.max_length)


def count_tokens(read: Callable[[str, str], Sequence[int]], texts: Sequence[str]) -> list[int]:
    """Returns how many tokens a language model reads of each text, by `read` or `read_prompt`."""
    return [len(read(text, f"texts[{number}]")) for number, text in enumerate(texts)]


def pad(payloads: list[Any]) -> list[Any]:
    """Returns payloads for a batch of one row or of ROWS."""
    return payloads if len(payloads) == 1 else payloads + payloads[-1:] * (ROWS - len(payloads))


def as_dicts(results: list[list[Any]]) -> list[list[dict[str, Any]]]:
    """Returns the fields of the results of each text."""
    return [[result._asdict() for result in best] for best in results]


class Translate(Operation):
    """Translations; an item is a segment of a text, and a batch has `ROWS` per core."""

    name = "translate"

    def __init__(self, run: LoadedRun):
        super().__init__(run)
        self.max_length, self.max_best = self.predictor.max_length, run.config.decode.beam_size
        self._encode = self.predictor.source_tokenizer.encode
        self._split = Segmenter(run.config, run.folder, self._encode, self.max_length)
        self._workers, _ = share(self.variables, run.config.decode.batch_size)
        self.max_batch = self._workers * ROWS

    def prepare(self, rows: int, length: int) -> None:
        self.predictor.prepare_rows(self.variables, rows, length)

    def plan(self, fields: Fields) -> RequestPlan:
        count, sources = self.best(fields), self.tag(fields)
        tokens = sum(map(len, self._encode(sources)))
        if tokens > MAX_REQUEST_TOKENS:
            raise UserError(
                f"texts has {tokens:,} tokens in all, more than {MAX_REQUEST_TOKENS:,}: send fewer "
                "or shorter texts at once"
            )
        texts = [self._split.lines(text, number) for number, text in enumerate(sources, 1)]
        parts = [[part for part in text if not isinstance(part, Layout)] for text in texts]
        segments = [part for text in parts for part in text]
        lengths = [len(ids) + 1 for ids in self._encode(segments)]
        too_many = map(self.unread, lengths)
        unread = [sum(itertools.islice(too_many, len(text))) for text in parts]

        def answer(results: list[Any]) -> dict[str, Any]:
            rest = iter(results)
            best = [join_segments(text, rest, count)[:count] for text in texts]
            return {"translations": as_dicts(best), "unread": unread}

        payloads = [(segment, count) for segment in segments]
        return RequestPlan(list(map(self.group, lengths)), payloads, answer)

    def compute(self, group: int, payloads: list[tuple[str, int]]) -> list[Any]:
        rows = 1 if len(payloads) <= self._workers else ROWS
        texts, counts = zip(*payloads, strict=True)
        return self.predictor.translate(self.variables, texts, num_best=max(counts), rows=rows)


class ScoreTexts(Operation):
    """Log-probabilities of texts, or of targets given their texts."""

    name = "score"

    def __init__(self, run: LoadedRun):
        super().__init__(run)
        self._pairs = not isinstance(self.predictor, Generator)
        self.max_length = self.predictor.max_length if self._pairs else self.predictor.context

    def prepare(self, rows: int, length: int) -> None:
        rows = static_rows(rows, self.predictor.decode.batch_size)
        self.predictor.prepare_scores(self.variables, rows, length)

    def plan(self, fields: Fields) -> RequestPlan:
        texts, targets = self.tag(fields), fields.get("targets", [])
        if not self._pairs:
            if "targets" in fields:
                raise UserError("targets is for translators: leave it out")
            columns = [texts]
            tokens = [[0] * len(texts), count_tokens(self.predictor.read, texts)]
        elif len(texts) != len(targets):
            counts = f"targets has {len(targets)} texts, and texts has {len(texts)}"
            raise UserError(f"{counts}: give a translation of each of the texts")
        else:
            columns = [texts, targets]
            encode = self.predictor.source_tokenizer.encode, self.predictor.target_tokenizer.encode
            tokens = [[len(ids) + 1 for ids in f(c)] for f, c in zip(encode, columns, strict=True)]
        lengths = list(zip(*tokens, strict=True))
        unread = [dict(zip(SIDES, map(self.unread, pair), strict=True)) for pair in lengths]

        def answer(results: list[Any]) -> dict[str, Any]:
            scores = [{"log_prob": log_prob, "tokens": count} for log_prob, count in results]
            return {"scores": scores, "unread": unread}

        groups = [self.group(max(pair)) for pair in lengths]
        return RequestPlan(groups, list(zip(*columns, strict=True)), answer)

    def compute(self, group: int, payloads: list[tuple[str, ...]]) -> list[Any]:
        columns = map(list, zip(*pad(payloads), strict=True))
        return list(self.predictor.score(self.variables, *columns))[: len(payloads)]


class Generate(Operation):
    """Continuations of prompts: each is that of the prompt alone."""

    name = "generate"
    max_best = ROWS

    def __init__(self, run: LoadedRun):
        super().__init__(run)
        self.max_length, decode = self.predictor.context, run.config.decode
        self._counts: Sequence[int] = range(1, ROWS + 1)
        if decode.search == "beam":
            self.max_best = decode.beam_size
            # Padded prompts are searched a batch at a time; the last one may have fewer.
            self._counts = (1, min(ROWS, decode.batch_size), ROWS % decode.batch_size or 1)

    def programs(self) -> Iterator[Program]:
        # A program is for all lengths. Each sample is a row: the page, which asks for up to `ROWS`
        # samples of one text, needs all powers of two up to that. Several samples of several texts
        # are compiled when they are asked for: they take more memory, and are rarely needed.
        size = self.predictor.decode.batch_size
        for rows in dict.fromkeys(static_rows(count, size) for count in self._counts):
            yield 1, lambda rows=rows: self.predictor.prepare(self.variables, rows, 1)

    def plan(self, fields: Fields) -> RequestPlan:
        texts, count = fields["texts"], self.best(fields)
        lengths = count_tokens(self.predictor.read_prompt, texts)
        groups = [(self.group(length), count) for length in lengths]
        return RequestPlan(groups, texts, lambda results: {"continuations": as_dicts(results)})

    def compute(self, group: tuple[int, int], payloads: list[str]) -> list[Any]:
        prompts = pad(payloads)
        numbers = [1] * len(prompts)
        best = self.predictor.write(self.variables, prompts, num_best=group[1], numbers=numbers)
        return best[: len(payloads)]


class Classify(Operation):
    """The classes of texts with their probabilities."""

    name = "classify"

    def __init__(self, run: LoadedRun):
        super().__init__(run)
        self.max_length, self.max_best = self.predictor.max_tokens, len(self.predictor.labels)

    def prepare(self, rows: int, length: int) -> None:
        rows = static_rows(rows, self.predictor.batch_size)
        self.predictor.prepare_rows(self.variables, rows, length)

    def plan(self, fields: Fields) -> RequestPlan:
        if "pictures" in fields:
            raise UserError("pictures is for models of pictures: leave it out")
        if "texts" not in fields:
            raise UserError("texts is missing: give it, see /openapi.json")
        count, texts = self.best(fields), fields["texts"]
        lengths = [len(ids) for ids in read_texts(texts, self.predictor.tokenizer)]
        return self.planned(texts, lengths, list(map(self.unread, lengths)), count)

    def planned(
        self, payloads: Sequence[Any], lengths: Sequence[int], unread: list[int], count: int
    ) -> RequestPlan:
        """Returns the plan of payloads with these numbers of tokens."""

        def answer(results: list[Any]) -> dict[str, Any]:
            return {"classes": as_dicts([best[:count] for best in results]), "unread": unread}

        return RequestPlan(list(map(self.group, lengths)), payloads, answer)

    def compute(self, group: int, payloads: list[Any]) -> list[Any]:
        return self.predictor.predict(self.variables, pad(payloads))[: len(payloads)]


class ClassifyPictures(Classify):
    """The classes of pictures, or the answers to questions about them."""

    def plan(self, fields: Fields) -> RequestPlan:
        if "pictures" not in fields:
            raise UserError("pictures is missing: give it, see /openapi.json")
        count, texts, pictures = self.best(fields), fields.get("texts", []), fields["pictures"]
        asks = self.predictor.tokenizer is not None
        if len(texts) != asks * len(pictures):
            needed = "a question on each picture" if asks else "pictures alone"
            raise UserError(
                f"{len(pictures)} pictures, {len(texts)} texts: this run needs {needed}"
            )
        items = see(self.predictor, pictures, texts or [""] * len(pictures))
        lengths = [len(self.predictor.tokens_of(item)) for item in items]
        unread = [self.predictor.unread(f"picture\t{text}") for text in texts or pictures]
        return self.planned(items, lengths, unread, count)

    def compute(self, group: int, payloads: list[SeenPicture]) -> list[Any]:
        return self.predictor.rank(self.variables, pad(payloads))[: len(payloads)]


def see(
    predictor: PictureClassifier, urls: list[str], questions: list[str], place: str = "pictures[{}]"
) -> list[SeenPicture]:
    """Returns data URLs, never the names of files of the server, and questions as items."""
    names = [place.format(i) for i in range(len(urls))]
    pictures = list(zip(decode_pictures(urls, names), names, strict=True))
    for name, question in zip(names, questions, strict=True):
        if predictor.tokenizer and not question.strip():
            raise UserError(f"{name} has no question: give one as its text")
    pixels = [read_picture(data, *predictor.look, name=name) for data, name in pictures]
    return list(map(predictor.see, pixels, questions))


class Explain(Operation):
    """The attention of all heads over a text."""

    name = "attention"
    max_batch = 1

    def __init__(self, run: LoadedRun, max_length: int):
        super().__init__(run)
        self.max_length = max_length

    def programs(self) -> Iterator[Program]:
        prepare = self.predictor.prepare_attention
        for length in static_lengths(self.max_length):
            yield length, lambda length=length: prepare(self.variables, length)

    def plan(self, fields: Fields) -> RequestPlan:
        text = Tagger(self.run.config.data, fields.get("source_tag"))(fields["text"], "text")
        if "target" in fields and not isinstance(self.predictor, Translator):
            raise UserError("target is for translators: leave it out")
        if isinstance(self.predictor, Generator):
            self.predictor.read(text, "text")
        elif self.predictor.is_blank(text):
            raise UserError("text is blank: give one whose attention is to be seen")
        if "picture" in fields:
            raise UserError("picture is for models of pictures: leave it out")
        return RequestPlan([None], [fields], lambda results: results[0])

    def compute(self, group: None, payloads: list[Fields]) -> list[Any]:
        [fields] = payloads
        optional = fields.get("target"), fields.get("source_tag")
        return [live_example(self.run.attention(fields["text"], *optional))]


class ExplainPicture(Explain):
    """The attention of all heads over a picture and a question."""

    def plan(self, fields: Fields) -> RequestPlan:
        text = fields["text"]
        if {"target", "source_tag"} & fields.keys():
            raise UserError("target and source_tag are for translators: leave them out")
        [item] = see(self.predictor, [fields.get("picture", "")], [text], "picture")
        unread = self.predictor.unread(f"picture\t{text}")
        return RequestPlan([None], [(item, unread)], lambda results: results[0])

    def compute(self, group: None, payloads: list[tuple[SeenPicture, int]]) -> list[Any]:
        return [live_example(self.predictor.attention_of(self.variables, *payloads[0]))]


OPERATIONS = {each.name: each for each in (Translate, ScoreTexts, Generate, Classify)}


class Served:
    """A run with its operations; the first one writes, or names classes."""

    def __init__(self, name: str, run: LoadedRun):
        self.name, self.run, model = name, run, run.config.model
        predictor = run.trained.predictor
        self._sees = isinstance(predictor, PictureClassifier)
        self._inputs = ["picture"] * self._sees + ["text"] * (
            not self._sees or predictor.tokenizer is not None
        )
        kinds = OPERATIONS | ({"classify": ClassifyPictures} if self._sees else {})
        names = [each for each in METHODS[run.config.task] if each in kinds]
        if not names:
            raise UserError(
                f"{run.folder} is a run of config.task={run.config.task}, which is not served: use "
                f"--mode={METHODS[run.config.task][0]}"
            )
        self.operations: dict[str, Operation] = {each: kinds[each](run) for each in names}
        self._first = self.operations[names[0]]
        if has_heads(model) or has_cross_attention(model):
            explain = ExplainPicture if self._sees else Explain
            self.operations[Explain.name] = explain(run, self._first.max_length)

    def describe(self) -> dict[str, Any]:
        """Returns its description for `GET /api/runs`."""
        tags = tags_of(self.run.config.data)
        return {
            "name": self.name,
            "task": self.run.config.task,
            "inputs": self._inputs,
            "steps": list(self.run.trained.steps),
            "languages": languages_of(load_config(self.run.folder).data),
            "operations": list(self.operations),
            "max_best": self._first.max_best,
            "max_length": self._first.max_length,
            "source_tags": list(tags) if any(tags) else [],
        }
