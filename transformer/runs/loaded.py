"""Python API of a trained model: translations, scores, attention weights and embeddings."""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from transformer.analysis.attention import Attention
from transformer.bridges.formats import Export, write_export
from transformer.checks import check
from transformer.config import assign
from transformer.config.keys import having
from transformer.data.corpora import Tagger
from transformer.data.formats.tags import Aligned
from transformer.data.pairs import Pair
from transformer.errors import UserError
from transformer.files import import_sibling
from transformer.inference import interventions
from transformer.inference.base import Embeddings
from transformer.inference.confidence import Confidence, estimate, read_weights
from transformer.inference.explanations import Attribution, Lens, attribute, read_layers
from transformer.inference.generator import Generator
from transformer.inference.hypotheses import Alternative, Branch, NextToken
from transformer.inference.inspection import Inspector, count_and_temperature
from transformer.inference.prefixes import Prefix
from transformer.inference.translator import Translator
from transformer.operations import OPERATIONS, Operation, Request, TextScore, list_of_texts, pair_up
from transformer.runs.run import Run, TrainedRun
from transformer.runs.workdir import load_config, run_folder, stored_run
from transformer.tasks import REGISTRY
from transformer.tasks.pair_scores import refuse_blank
from transformer.tasks.translation import TranslationTask


def load(folder: str | Path, settings: Mapping[str, Any] | None = None) -> "LoadedRun":
    """Loads the trained model from a run's folder.

    Args:
      folder: the `--workdir` that was used for training, or the name of a model in the package:
        "quickstart" translates from English to German, and "captions" describes scenes.
      settings: overrides of the run's config, such as {"decode.beam_size": 1}. The keys of `decode`
        and `evaluate`, `model.attention_implementation` and `model.matmul_dtype` are allowed.
    """
    folder = stored_run(folder) or run_folder(folder)
    config = load_config(folder)
    for key, value in (settings or {}).items():
        assign(config, key, value)
        if key not in having("scores", "implementation"):
            raise UserError(
                f"load sets keys of decode and evaluate, {' and '.join(having('implementation'))}, "
                f"not {key}={value!r}: train with another value of that key"
            )
    check(config)
    return LoadedRun(Run(folder, config))


def train(
    config: ConfigDict | str | Path, workdir: str | Path, settings: Mapping[str, Any] | None = None
) -> "LoadedRun":
    """Trains or resumes a run, scores the model, writes a report, and returns the loaded run.

    Logs go to standard output. An interrupt (Ctrl-C) saves the run, and the same call resumes it.

    Args:
      config: the experiment's config, or the name of a config file, such as "configs/own_text.py".
      settings: {dotted key: value} overrides of the config, as in `--config.key=value`.
    """
    return load(import_sibling("experiments.command.command").train_run(config, workdir, settings))


class LoadedRun(Run):
    """A run whose trained model is loaded into memory.

    Methods take a list of strings, and return results in the same order. The result for a text does
    not depend on the other texts, except when sampling (see `generate`). The first texts of each
    length take a few seconds longer, due to compilation.

    Attributes:
      trained: the model and its variables.
    """

    def __init__(self, run: Run):
        super().__init__(run.folder, run.config)
        self.trained: TrainedRun[Any] = self.load_trained()
        self._operations: dict[str, Operation] = {}

    def __repr__(self) -> str:
        steps = ", ".join(map(str, self.trained.steps))
        return f"LoadedRun({str(self.folder)!r}: {self.config.task}, weights of step {steps})"

    def translate(
        self,
        texts: Iterable[str],
        num_best: int | None = None,
        source_tag: str | None = None,
        prefix: Iterable[str] | None = None,
        glossary: Mapping[str, str] = {},
    ) -> list[Any]:
        """Returns the translation of each text, or '' for a blank text.

        Each line of a text is translated as in `--mode=translate`. Line breaks and white space
        around lines are preserved.

        Args:
          num_best: if given, a list of up to this many translations (see `Translation`) is
            returned for each text. The maximum is `decode.beam_size`, except for samples.
          source_tag: tag to prepend to every text, such as <2de>, if the model uses tags.
          prefix: how the translation of each text begins, or '' for any beginning. It may end
            within a word; one that ends with a space ends a word.
          glossary: target terms by source term, such as {"dog": "Hund"}.
        """
        return self._best("translate", texts, num_best, source_tag, prefix, glossary)

    def score(
        self,
        texts: Iterable[str],
        targets: Iterable[str] | None = None,
        source_tag: str | None = None,
    ) -> list[TextScore]:
        """Returns the log-probability of each target given its text, or of each text itself.

        Args:
          targets: translations of the texts; required for translation models, rejected for others.
        """
        operation, texts = self.operation("score"), list_of_texts(texts)
        targets = pair_up("score", self.trained.predictor, texts, targets)
        pairs = list(zip(texts, targets, strict=True)) if operation.has_pairs else texts
        return [score for [score] in operation.answer(Request(pairs, source_tag=source_tag))]

    def confidence(
        self,
        texts: Iterable[str],
        targets: Iterable[str] | None = None,
        source_tag: str | None = None,
    ) -> list[Confidence]:
        """Returns the confidence in each target, by default the model's translation of a text."""
        operation, texts = self.operation("confidence"), list_of_texts(texts)
        if targets is None:
            return [sure for _, sure in operation.answer(Request(texts, source_tag=source_tag))]
        targets = pair_up("confidence", self.trained.predictor, texts, targets)
        weights = read_weights(self.folder)
        tokens = self.next_tokens(texts, targets, 1, source_tag=source_tag)
        return [estimate(weights, *each) for each in zip(targets, tokens, strict=True)]

    def align(self, texts: Iterable[str], source_tag: str | None = None) -> list[Aligned]:
        """Returns the translation of each text with its word links, found segment by segment."""
        request = Request(list_of_texts(texts), source_tag=source_tag)
        answers = self.operation("align").answer(request)
        return [Aligned(row[0].text if row else "", links) for row, links in answers]

    def next_tokens(
        self,
        texts: Iterable[str],
        targets: Iterable[str] | None = None,
        num_best: int = 5,
        temperature: float = 1.0,
        source_tag: str | None = None,
    ) -> list[list[NextToken]]:
        """Returns how probable each token of each target, or of each text itself, is.

        Args:
          num_best: number of most probable tokens at each position.
          temperature: divides the logits: below 1 it sharpens, above 1 it flattens distributions.
        """
        self._check_task("next_tokens")
        texts = list_of_texts(texts)
        targets = pair_up("next_tokens", self.trained.predictor, texts, targets)
        options = count_and_temperature(num_best, temperature)
        if isinstance(model := self.trained.predictor, Generator):
            return model.distributions(self.trained.variables, model.text_batches(texts), *options)
        pairs = self._sources(texts, source_tag), targets
        return self._inspector("next_tokens").next_tokens(*pairs, *options)

    def alternatives(
        self,
        text: str,
        target: str,
        position: int,
        num_best: int = 5,
        temperature: float = 1.0,
        source_tag: str | None = None,
    ) -> list[Alternative]:
        """Returns the most probable tokens at a position, with the translations that would follow.

        Args:
          position: zero-based index of a token of the target, or of the end after the last one.
        """
        inspector, [source] = self._inspector("alternatives"), self._sources([text], source_tag)
        options = position, *count_and_temperature(num_best, temperature)
        return inspector.alternatives(source, list_of_texts([target])[0], *options)

    def beam(
        self, text: str, prefix: str = "", source_tag: str | None = None
    ) -> list[list[Branch]]:
        """Returns the continuations at each step of the search for a translation."""
        inspector, [source] = self._inspector("beam"), self._sources([text], source_tag)
        if "translate" in REGISTRY[self.config.task].operations:
            plan = self.operation("translate").plan(Request([source], is_file=True))
            if len(plan.items) > 1:
                raise UserError(f"the text is translated in {len(plan.items)} parts: give one")
        return inspector.beam(source, Prefix(list_of_texts([prefix])[0]))

    def evaluate(
        self, texts: Iterable[str], *references: Iterable[str], source_tag: str | None = None
    ) -> dict[str, Any]:
        """Returns BLEU, chrF, TER, loss and other scores on the texts, as in `results["test"]`.

        Args:
          references: one or more lists, each with a reference translation of every text.
        """
        self._check_task("evaluate")
        sources, lists = self._tagged(texts, source_tag), list(map(list_of_texts, references))
        if not sources or not lists or {*map(len, lists)} != {len(sources)}:
            counts = f"{len(sources)} texts and {', '.join(map(str, map(len, lists))) or 'no'}"
            raise UserError(f"evaluate has {counts} references: give each text one")
        pairs = []
        for number, texts_of_pair in enumerate(zip(sources, *lists, strict=True), 1):
            source, first, *more = (refuse_blank(text, f"text {number}") for text in texts_of_pair)
            pairs.append(Pair(source, first, None, (*more,)))
        config = self.config.copy_and_resolve_references()
        config.evaluate.perturbed_sentences = 0
        task = TranslationTask.from_folder(self.folder, config, pairs)
        task.predictor = self.trained.predictor  # reuses its compiled programs
        scores = task.evaluate(self.trained.variables["params"], "test", final=True)
        return {name: value for name, value in scores.items() if name not in ("counts", "texts")}

    def caption(self, pictures: Iterable[str], num_best: int | None = None) -> list[Any]:
        """Returns a caption for each image, given file names; `num_best` is as in `translate`."""
        return self._best("caption", pictures, num_best)

    def generate(self, prompts: Iterable[str], num_best: int | None = None) -> list[Any]:
        """Returns each prompt with its continuation; see `decode.search` and the keys after it.

        Generation is deterministic for a given `decode.seed`. A sampled continuation depends
        on its prompt and on the position of the prompt in the list.

        Args:
          num_best: if given, this many continuations (see `Continuation`) are returned for each
            prompt. Samples have the score None. Beam search may find fewer, but all are distinct.
        """
        return self._best("generate", prompts, num_best)

    def classify(self, texts: Iterable[str], num_best: int | None = None) -> list[Any]:
        """Returns the most probable class of each text, or '' for a blank text.

        Args:
          num_best: if given, a list of up to this many most probable classes (see `Prediction`) is
            returned for each text.
        """
        return self._best("classify", texts, num_best)

    def attention(
        self, text: str, target: str | None = None, source_tag: str | None = None
    ) -> Attention:
        """Returns the attention weights of all heads in all layers for a text.

        Args:
          target: a translation of the text; by default, the model generates the translation.
        """
        pair = self._pair("attention", text, target, source_tag)
        attention = self.trained.predictor.attention(self.trained.variables, *pair)
        if not attention.weights:
            name = self.config.model.architecture
            raise UserError(f"config.model.architecture={name} has no attention")
        return attention

    @contextlib.contextmanager
    def intervene(self, changes: Mapping[str, Any], text: Any = None) -> Iterator["LoadedRun"]:
        """Changes what the model computes, within a `with` statement.

        Args:
          changes: place -> what is done there, such as {"decoder.*.cross.head.1.output": "zero"};
            see `transformer.inference.interventions`.
          text: the text, or (source, target), whose words are named in places.
        """
        before, predictor = (self.trained, self._operations), self.trained.predictor
        resolved = interventions.resolve(changes, predictor, self.trained.variables, text)
        variables = interventions.add(self.trained.variables, resolved, predictor.model)
        self.trained = dataclasses.replace(self.trained, variables=variables)
        self._operations = {}
        try:
            yield self
        finally:
            self.trained, self._operations = before

    def lens(
        self, text: str, target: str | None = None, num_best: int = 5, source_tag: str | None = None
    ) -> dict[str, Lens]:
        """Returns the most probable tokens after each layer; see `attention` and `next_tokens`."""
        count_and_temperature(num_best, 1.0)
        pair = self._pair("lens", text, target, source_tag)
        return read_layers(self.trained.predictor, self.trained.variables, pair, num_best)

    def attribution(
        self,
        text: str,
        target: str | None = None,
        method: str = "integrated_gradients",
        steps: int = 128,
        source_tag: str | None = None,
    ) -> Attribution:
        """Returns what each token that is read adds to each written token; see `explanations`."""
        pair = self._pair("attribution", text, target, source_tag)
        return attribute(self.trained.predictor, self.trained.variables, pair, method, steps)

    def export(self, format: str, folder: str | Path) -> Path:
        """Exports the model and a model card in a format of `bridges.formats` to a new folder."""
        scores = (self.results or {}).get("test", {})
        params, predictor = self.trained.variables["params"], self.trained.predictor
        steps, metrics = self.trained.steps, REGISTRY[self.config.task].metrics
        export = Export(self.folder, steps, self.config, predictor, params, scores, metrics)
        return write_export(export, format, Path(folder))

    @property
    def embeddings(self) -> dict[str, Embeddings]:
        """The embedding tables, keyed by use; tied tables share a key ("source_target_output")."""
        tables = self.trained.predictor.token_tables(self.trained.variables)
        return {
            name: Embeddings(tokenizer.pieces(range(len(vectors))), vectors)
            for name, (vectors, tokenizer) in tables.items()
        }

    def operation(self, name: str) -> Operation:
        """Returns the task's operation with the given name, such as "translate"."""
        self._check_task(name)
        if name not in self._operations:
            model = self.trained.predictor, self.trained.variables, self.config, self.folder
            self._operations[name] = OPERATIONS[name](*model)
        return self._operations[name]

    # -- internals

    def _check_task(self, method: str) -> None:
        """Raises UserError if the run's task does not support the method."""
        task = self.config.task
        if method not in (methods := (*REGISTRY[task].operations, "attention", "embeddings")):
            having = [name for name, each in REGISTRY.items() if method in each.operations]
            raise UserError(
                f"{method} is for config.task={' or '.join(having)}: {self.folder} is a run of "
                f"config.task={task}, which has {', '.join(methods)}"
            )

    def _best(
        self,
        name: str,
        texts: Iterable[Any],
        num_best: int | None,
        tag: str | None = None,
        prefix: Iterable[str] | None = None,
        glossary: Mapping[str, str] = {},
    ) -> list[Any]:
        """Returns all results for each text, or only the best one if `num_best` is None."""
        operation, texts = self.operation(name), list_of_texts(texts)
        more = {"prefixes": list_of_texts(prefix or ()), "glossary": glossary}
        request = Request(texts, self._count(num_best), tag, **more)
        answers = operation.answer(request)
        if num_best is not None:
            return answers
        return [best[0][0] if best else "" for best in answers]

    def _count(self, num_best: int | None) -> int:
        """Returns the number of results for each text, by default 1, after checking `num_best`."""
        config = self.config.copy_and_resolve_references()
        try:
            assign(config, "decode.num_best", num_best or 1)
            check(config)
        except UserError as error:
            raise UserError(str(error).replace("config.decode.num_best", "num_best")) from None
        return num_best or 1

    def _inspector(self, method: str) -> Inspector:
        self._check_task(method)
        return Inspector(self.trained.predictor, self.trained.variables)

    def _sources(self, texts: Iterable[str], source_tag: str | None) -> list[str]:
        """Returns the texts with their tags; raises UserError if one is blank."""
        tagged, model = self._tagged(texts, source_tag), self.trained.predictor
        if not isinstance(model, Generator) and any(map(model.is_blank, tagged)):
            raise UserError("the text is blank: give one that has words")
        return tagged

    def _pair(self, method: str, text: str, target: str | None, tag: str | None) -> list[str]:
        """Returns a text, and its target if there is one, as a translator reads them."""
        self._check_task(method)
        if target is not None and not isinstance(self.trained.predictor, Translator):
            raise UserError(f"{method} of config.task={self.config.task} has no target")
        return self._sources([text], tag) + ([] if target is None else list_of_texts([target]))

    def _tagged(self, texts: Iterable[str], source_tag: str | None) -> list[str]:
        """Returns the source texts, with their tags prepended if the model uses tags."""
        tag = Tagger(self.config.data, source_tag)
        return [tag(text, f"text {number}") for number, text in enumerate(list_of_texts(texts), 1)]
