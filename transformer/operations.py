"""Operations of a trained model, such as translation; each plans and processes requests.

The command line, the Python API and the HTTP server are interfaces to operations. An interface
builds a `Request`, chooses batches, and writes the results. Planning does not run the model.
"""

import collections
import functools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from ml_collections import ConfigDict

from transformer.data.corpora import Tagger, languages_of
from transformer.data.formats.tags import Aligned, find_links
from transformer.data.labelled import read_texts
from transformer.data.pairs import Pair
from transformer.data.words import TERM
from transformer.errors import UserError
from transformer.inference.base import Variables, share, static_lengths, static_rows
from transformer.inference.confidence import FILE, estimate, read_weights
from transformer.inference.generator import Generator
from transformer.inference.hypotheses import NextToken, Translation
from transformer.inference.inspection import Inspector, align_words
from transformer.inference.prefixes import Prefix, force_terms, prescribe
from transformer.inference.segments import Layout, Segmenter, join

Program = tuple[int, Callable[[], object]]  # (number of tokens, function that compiles it)


class TextScore(NamedTuple):
    """The log-probability of a text in nats, and the number of tokens in the sum."""

    log_prob: float
    tokens: int


class Request(NamedTuple):
    """Texts, or (text, translation) pairs, and options for the requested results."""

    texts: Sequence[Any]
    count: int = 1  # maximum results per text
    source_tag: str | None = None  # prepended to every text; None if texts include their tags
    first: int = 1  # number of the first text
    place: str = "text {}"  # format string for naming a text in messages by its number
    is_file: bool = False  # whether texts are file lines, with their tags and any other line breaks
    max_tokens: int = 0  # maximum total tokens of all texts to translate; 0 for no limit
    prefixes: Sequence[str] = ()  # how the translation of each text begins
    glossary: Mapping[str, str] = {}  # target terms by source term


class Plan(NamedTuple):
    """The items of a request, each item's text number, and a function that joins item results."""

    items: Sequence[Any]
    numbers: Sequence[int]
    join: Callable[[Iterable[Any]], list[Any]] = list


class Operation:
    """An operation of a trained model on texts; by default, an item is a text."""

    name: ClassVar[str]
    max_length: int  # maximum tokens of a text
    max_best: int | None = 1  # maximum results per text; None for no limit
    workers = 1  # best number of concurrent batches
    has_pairs = False  # whether texts are pairs

    def __init__(self, predictor: Any, variables: Variables, config: ConfigDict, folder: Path):
        self.predictor, self.variables = predictor, variables
        self.config, self.folder = config, folder

    def plan(self, request: Request) -> Plan:
        """Returns the plan for a request with tagged texts; raises UserError if it is invalid."""
        numbers = range(request.first, request.first + len(request.texts))
        if request.is_file:
            return Plan(request.texts, numbers)
        tag, texts = Tagger(self.config.data, request.source_tag), request.texts
        places = map(request.place.format, numbers)
        if not self.has_pairs:
            return Plan(list(map(tag, texts, places)), numbers)
        return Plan([(tag(text, next(places)), target) for text, target in texts], numbers)

    def measure(self, item: Any, place: str) -> tuple[int, int]:
        """Returns an item's source and target token counts; raises UserError if it is invalid."""
        raise NotImplementedError

    def checked(self, text: str, place: str) -> str:
        """Validates and returns a text; language models reject unknown words."""
        if isinstance(self.predictor, Generator):
            self.measure(text, place)
        return text

    def compute(
        self,
        items: Sequence[Any],
        count: int = 1,
        numbers: Sequence[int] = (),
        rows: int = 0,
        done: Callable[[int], None] = lambda count: None,
    ) -> list[Any]:
        """Returns the results for each item, best first; they do not depend on the other items.

        Args:
          numbers: text numbers for warnings and random keys; `Generate` uses 1 by default.
          rows: batch size that `programs` has compiled; by default, it depends on the items.
          done: called with the number of items completed since the last call.
        """
        padded = [*items, *list(items[-1:]) * (rows - len(items))]
        return self._compute(padded, count, numbers, done)[: len(items)]

    def answer(
        self, request: Request, done: Callable[[int], None] = lambda count: None
    ) -> list[Any]:
        """Returns the results for each text; `done` is called with the number of new results."""
        plan, items, texts = self.plan(request), 0, 0

        def advance(more: int) -> None:
            nonlocal items, texts
            items, before = items + more, texts
            texts = items * len(request.texts) // max(1, len(plan.items))
            done(texts - before)

        results = self.compute(plan.items, request.count, plan.numbers, done=advance)
        done(len(request.texts) - texts)
        return plan.join(results)

    def programs(self, rows: int) -> Iterator[Program]:
        """Yields the programs for batch sizes 1 and `rows`, in ascending order of length."""
        for length in static_lengths(self.max_length):
            for size in (1, rows):
                yield length, functools.partial(self._compile, size, length)

    def _compile(self, rows: int, length: int) -> None:
        """Compiles the programs for a static batch shape."""
        self.predictor.prepare_rows(self.variables, rows, length)

    def _compute(self, items: Sequence[Any], count: int, numbers: Any, done: Any) -> list[Any]:
        raise NotImplementedError


class Caption(Operation):
    """Captions images, given their file names; an item is a name, and how the caption begins."""

    name = "caption"

    def __init__(self, *model: Any):
        super().__init__(*model)
        self.max_length, (kind, *sizes) = self.predictor.max_length, self.predictor.sizes(1)
        self.max_best = None if kind == "sample" else math.prod(sizes)
        self.workers, _ = share(self.config.decode.batch_size)

    def plan(self, request):
        plan, prefixes = super().plan(request), request.prefixes or [""] * len(request.texts)
        if len(prefixes) != len(plan.items):
            counts = f"{len(plan.items)} texts and {len(prefixes)} prefixes"
            raise UserError(f"{counts}: give each text one, '' for any beginning")
        return plan._replace(items=[*zip(plan.items, map(Prefix, prefixes), strict=True)])

    def compute(self, items, count=1, numbers=(), rows=0, done=lambda count: None):
        texts, prefixes = zip(*items, strict=True) if items else ((), ())
        options = {"numbers": numbers, "done": done, "num_best": count, "rows": rows or None}
        return self.predictor.translate(self.variables, texts, prefixes=prefixes, **options)


class Translate(Caption):
    """Translates texts; an item is a segment of a text, and how its translation begins."""

    name = "translate"

    def __init__(self, *model: Any):
        super().__init__(*model)
        encode = self.predictor.source_tokenizer.encode
        self._segmenter = Segmenter(self.config, self.folder, encode, self.max_length)
        _, self._target_language = languages_of(self.config.data)

    def plan(self, request):
        pairs, most, count = super().plan(request).items, request.max_tokens, request.count
        lengths = (self.measure(pair, "")[0] - 1 for pair in pairs)
        if most and (tokens := sum(lengths)) > most:
            raise UserError(
                f"texts has {tokens:,} tokens in all, more than {most:,}: send fewer or shorter "
                "texts at once"
            )
        split = self._segmenter if request.is_file else self._segmenter.lines
        lines = [split(text, number) for number, (text, _) in enumerate(pairs, request.first)]
        items, numbers = [], []
        for number, (line, (_, prefix)) in enumerate(zip(lines, pairs, strict=True), request.first):
            parts = [part for part in line if not isinstance(part, Layout)]
            dealt = self._segmenter.deal(prefix.text, parts, self._target_language)
            items += zip(parts, dealt, strict=True)
            numbers += [number] * len(parts)
        if request.glossary:
            items = prescribe(items, request.glossary, self.config.data.augment_glossary > 0)

        def join_results(results: Iterable[Any]) -> list[Any]:
            rest = iter(results)

            def translate(part: str) -> list[Translation]:
                return [Translation(part, 0.0, 0)] if isinstance(part, Layout) else next(rest)

            def join_parts(parts: list[list[Translation]]) -> list[Translation]:
                if self.config.decode.search != "sample":
                    return join(parts, count)[:count]
                samples = range(max(map(len, parts)))  # sample n joins those of its segments
                return [join([[x[n % len(x)]] for x in parts], 1)[0] for n in samples]

            return [join_parts(list(map(translate, line))) for line in lines]

        return Plan(items, numbers, join_results)

    def compute(self, items, count=1, numbers=(), rows=0, done=lambda count: None):
        plain = [(text, prefix._replace(terms=())) for text, prefix in items]
        results = super().compute(plain, count, numbers, rows, done)
        align = functools.partial(align_words, self.predictor, self.variables, self.config.train)
        search = functools.partial(super().compute, count=count, rows=rows)
        return force_terms(items, results, align, search)

    def measure(self, item, place):
        return len(self.predictor.source_tokenizer.encode([item[0]])[0]) + 1, 0


class Confidence(Translate):
    """Translates texts; a result is (translations, the `Confidence` in the first of them)."""

    name = "confidence"

    def plan(self, request):
        plan, weights = super().plan(request), read_weights(self.folder)

        def join_results(results: Iterable[Any]) -> list[Any]:
            results, tokens = list(results), collections.defaultdict(list)
            for number, (_, of_segment) in zip(plan.numbers, results, strict=True):
                tokens[number] += of_segment
            rows = plan.join(best for best, _ in results)
            pairs = zip(rows, tokens.values(), strict=True)
            return [(row, estimate(weights, row[0].text, of_text)) for row, of_text in pairs]

        return plan._replace(join=join_results)

    def compute(self, items, count=1, numbers=(), rows=0, done=lambda count: None):
        results = super().compute(items, count, numbers, rows, done)
        texts = [item[0] for item in items], [best[0].text for best in results]
        sources, targets = ([*side, *side[-1:] * (rows - len(side))] for side in texts)
        tokens = Inspector(self.predictor, self.variables).next_tokens(sources, targets, 1, 1.0)
        return [
            (best, each if best[0].tokens else [NextToken(f"{best[0].text}\n", 0.0, 0.0, [])])
            for best, each in zip(results, tokens, strict=False)
        ]

    def programs(self, rows):
        return super().programs(rows) if (self.folder / FILE).exists() else iter(())

    def _compile(self, rows, length):
        rows = min(rows, self.config.decode.batch_size)  # `Translate` compiles the search
        batch = self.predictor.empty_batch(rows, length)
        self.predictor.distribution(self.variables, batch, 1.0, 1)


class Align(Translate):
    """Translates texts; a result is (translations, the word links of the first of them)."""

    name = "align"

    def plan(self, request):
        plan, split = super().plan(request), Tagger(self.config.data, None).split
        segments = [re.sub(".*?".join(TERM), "", split(text)[1]) for text, _ in plan.items]

        def join_results(results: Iterable[Any]) -> list[Any]:
            results, parts = list(results), collections.defaultdict(list)
            for number, text, (best, links) in zip(plan.numbers, segments, results, strict=True):
                parts[number].append((text.strip(), Aligned(best[0].text, links)))
            rows = plan.join(best for best, _ in results)
            return [
                (row, find_links(text, row[0].text, parts[number]) if row else [])
                for number, (text, row) in enumerate(zip(texts, rows, strict=True), request.first)
            ]

        texts = [split(str(text))[1] for text in request.texts]
        return plan._replace(join=join_results)

    def compute(self, items, count=1, numbers=(), rows=0, done=lambda count: None):
        results = super().compute(items, count, numbers, rows, done)
        pairs = [Pair(item[0], best[0].text) for item, best in zip(items, results, strict=True)]
        links = align_words(self.predictor, self.variables, self.config.train, pairs)
        split = Tagger(self.config.data, None).split  # a tag is not a word
        counts = [len(split(pair.source)[0].split()) for pair in pairs]
        return [
            (best, [(i - n, j) for i, j in of_pair if i >= n])
            for best, n, of_pair in zip(results, counts, links, strict=True)
        ]

    def programs(self, rows):
        return iter(())


class Score(Operation):
    """Computes log-probabilities of texts, or of translations given their sources."""

    name = "score"

    def __init__(self, *model: Any):
        super().__init__(*model)
        self.has_pairs = not isinstance(self.predictor, Generator)
        self.max_length = self.predictor.max_length if self.has_pairs else self.predictor.context

    def measure(self, item, place):
        if not self.has_pairs:
            return 0, len(self.predictor.read(item, place))
        source, target = self.predictor.source_tokenizer, self.predictor.target_tokenizer
        return len(source.encode([item[0]])[0]) + 1, len(target.encode([item[1]])[0]) + 1

    def _compile(self, rows, length):
        self.predictor.prepare_scores(self.variables, rows, length)

    def _compute(self, items, count, numbers, done):
        texts = [[pair[side] for pair in items] for side in (0, 1)] if self.has_pairs else [items]
        options = {"first_line": numbers[0] if numbers else 1, "done": done}
        scores = self.predictor.score(self.variables, *texts, **options)
        return [[TextScore(*each)] for each in scores]


class Generate(Operation):
    """Generates continuations of prompts."""

    name = "generate"

    def __init__(self, *model: Any):
        super().__init__(*model)
        self.max_length, decode = self.predictor.context, self.config.decode
        self.max_best = decode.beam_size if decode.search == "beam" else None

    def measure(self, item, place):
        return len(self.predictor.read_prompt(item, place)), 0

    def programs(self, rows):
        # A program handles all lengths. Each sample is a row, so 1 to `rows` samples of one text
        # need all powers of two up to `rows`. Programs for several samples of several texts are
        # compiled on demand, since they take more memory and are rarely needed. Beam search runs
        # one batch of padded prompts at a time, and the last batch may be smaller.
        size = self.predictor.decode.batch_size
        searched = (1, min(rows, size), rows % size or 1)
        counts = range(1, rows + 1) if self.max_best is None else searched
        for number in dict.fromkeys(static_rows(count, size) for count in counts):
            yield 1, functools.partial(self.predictor.prepare, self.variables, number)

    def _compute(self, items, count, numbers, done):
        return self.predictor.write(self.variables, items, count, numbers or [1] * len(items))


class Classify(Operation):
    """Predicts the most probable classes of texts, or of images given their file names."""

    name = "classify"

    def __init__(self, *model: Any):
        super().__init__(*model)
        self.max_length, self.max_best = self.predictor.max_tokens, len(self.predictor.labels)

    def measure(self, item, place):
        return len(read_texts([item], self.predictor.tokenizer)[0]), 0

    def _compute(self, items, count, numbers, done):
        first = numbers[0] if numbers else None
        return [best[:count] for best in self.predictor.predict(self.variables, items, first)]


def list_of_texts(texts: Iterable[Any]) -> list[str]:
    """Returns the texts as a list, after checking that all of them are strings."""
    if isinstance(texts, str):
        raise UserError(f"{texts[:40]!r} is a single text: give a list of texts")
    texts = list(texts)  # an iterator, such as a file, can be read only once
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise UserError(f"text {number} is {text!r}, of type {type(text).__name__}: give a str")
    return texts


def pair_up(
    method: str, predictor: Any, texts: Sequence[str], targets: Iterable[str] | None
) -> list[str]:
    """Returns the targets of a method, one for each text, or [] for a language model."""
    if isinstance(predictor, Generator):
        if targets is not None:
            raise UserError(f"{method} of a language model has no targets: leave them out")
        return []
    if targets is None:
        raise UserError(f"{method} of a translator needs targets: {method}(sources, targets)")
    targets = list_of_texts(targets)
    if len(texts) != len(targets):
        raise UserError(f"{method} has {len(texts)} sources and {len(targets)} targets")
    return targets


TYPES = (Translate, Confidence, Align, Caption, Score, Generate, Classify)
OPERATIONS = {each.name: each for each in TYPES}
