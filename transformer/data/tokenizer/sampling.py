"""Segmentations that are drawn when a batch is made, so that a text is read in several ways.

Source: BPE-dropout, Provilkov et al. 2020; subword regularization, Kudo 2018.
"""

import dataclasses
import functools
import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int
from ml_collections import ConfigDict

from transformer.data.token_store import ArrayWriter, TextStore, TokenStore
from transformer.data.tokenizer.model import Ids, Tokenizer
from transformer.errors import UserError

# By kind of tokenizer, the key that says how much is drawn.
KEYS = {"bpe": "bpe_dropout", "unigram": "sampling_alpha"}
SIDES = ("both", "source", "target")
PLANNED_DRAWS = 2  # of each text when it is encoded, by which epochs in turn choose its batch
TRIES = 4  # draws of a text in search of a length of its batch, before the planned draw is taken


def check_sampling(settings: ConfigDict, task: str) -> None:
    """Checks `config.tokenizer`, as far as that needs no model.

    Raises:
      UserError: no such kind of tokenizer or task is sampled, or there is no such side.
    """
    if settings.sampling_sides not in SIDES:
        raise UserError(
            f"tokenizer.sampling_sides={settings.sampling_sides!r} is unknown: choose one of "
            f"{', '.join(SIDES)}"
        )
    for key in KEYS.values():
        if settings[key] and task != "translation":
            raise UserError(
                f"tokenizer.{key}={settings[key]:g} is for config.task=translation, whose texts "
                f"are segmented when a batch is made: set config.tokenizer.{key}=0"
            )
    if not settings.model:
        strength_of(settings, settings.kind)


def strength_of(settings: ConfigDict, kind: str) -> float:
    """Returns the dropout or the alpha that a tokenizer of this kind samples with; 0 for not.

    Raises:
      UserError: a key is set that is for tokenizers of another kind.
    """
    for other, key in KEYS.items():
        if settings[key] and kind != other:
            fix = f"or config.tokenizer.{KEYS[kind]}" if kind in KEYS else f"for {other} alone"
            raise UserError(
                f"tokenizer.{key}={settings[key]:g} is for subwords of kind {other}, and these are "
                f"of kind {kind}: set config.tokenizer.{key}=0, {fix}"
            )
    return settings[KEYS[kind]] if kind in KEYS else 0.0


def strengths_of(settings: ConfigDict, tokenizers: Sequence[Tokenizer]) -> tuple[float, float]:
    """Returns `strength_of` the source and the target, 0 for a side that is not sampled."""
    source, target = (strength_of(settings, t.kind) for t in (tokenizers[0], tokenizers[-1]))
    sides = settings.sampling_sides
    return source * (sides != "target"), target * (sides != "source")


def cache_key(settings: ConfigDict) -> tuple[object, ...]:
    """Returns the settings behind the arrays of `SampledTexts`; none if no text is sampled."""
    strengths = tuple(settings[key] for key in KEYS.values())
    return (*strengths, settings.sampling_sides, PLANNED_DRAWS) if any(strengths) else ()


class SampledTexts:
    """Collects texts and the lengths of their first draws, while they are encoded.

    Args:
      name: of the side.
      tokenizer: of the side.
      strength: see `strength_of`.
      folder: in which the texts are written as they come, so that they need no memory.
    """

    def __init__(self, name: str, tokenizer: Tokenizer, strength: float, folder: Path):
        self._name, self._tokenizer, self._strength = name, tokenizer, strength
        self._text = ArrayWriter(folder / f"{name}_text.npy", np.uint8)
        self._lengths, self._drawn = [np.zeros(1, np.int64)], [np.zeros(0, np.int32)]
        self._count = 0

    def add(self, texts: Sequence[str]) -> None:
        """Adds texts, in their order."""
        encoded, drawn = [], []
        for number, text in enumerate(map(self._tokenizer.normalize, texts), self._count):
            sample = functools.partial(self._tokenizer.sample, text, self._strength)
            planned = (make_generator(self._name, number, i) for i in range(PLANNED_DRAWS))
            drawn += map(len, map(sample, planned))
            encoded.append(text.encode())
        self._count += len(encoded)
        self._text.add(np.frombuffer(b"".join(encoded), np.uint8))
        self._lengths.append(np.fromiter(map(len, encoded), np.int64, len(encoded)))
        self._drawn.append(np.array(drawn, np.int32))

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the arrays that `make_samplers` reads, by name."""
        return {
            f"{self._name}_text": self._text.finish(),
            f"{self._name}_text_offsets": np.cumsum(np.concatenate(self._lengths), dtype=np.int64),
            f"{self._name}_drawn": np.concatenate(self._drawn).reshape(-1, PLANNED_DRAWS),
        }


def sampled_texts(
    names: Sequence[str], settings: ConfigDict, tokenizers: Sequence[Tokenizer], folder: Path
) -> dict[str, SampledTexts]:
    """Returns the collector of each side that is sampled, by name.

    Args:
      folder: see `SampledTexts`.
    """
    strengths = strengths_of(settings, tokenizers)
    sides = zip(names, (tokenizers[0], tokenizers[-1]), strengths, strict=True)
    return {
        name: SampledTexts(name, own, strength, folder) for name, own, strength in sides if strength
    }


def make_samplers(
    arrays: Mapping[str, np.ndarray],
    names: Sequence[str],
    tokens: Sequence[TokenStore],
    settings: ConfigDict,
    tokenizers: Sequence[Tokenizer],
    max_tokens: int,
) -> "tuple[Sampler | None, ...]":
    """Returns the sampler of each side, None for one that is not sampled.

    Args:
      arrays: with those of `SampledTexts`.
      names: of the sides.
      tokens: the deterministic segmentation of each side.
      settings: `config.tokenizer`.
      tokenizers: one for both sides, or one each.
      max_tokens: see `Sampler`.
    """
    strengths = strengths_of(settings, tokenizers)
    sides = zip(names, tokens, (tokenizers[0], tokenizers[-1]), strengths, strict=True)
    return tuple(
        Sampler(
            name,
            TextStore(arrays[f"{name}_text"], arrays[f"{name}_text_offsets"]),
            store,
            arrays[f"{name}_drawn"],
            tokenizer,
            strength,
            max_tokens,
        )
        if strength
        else None
        for name, store, tokenizer, strength in sides
    )


@dataclasses.dataclass(frozen=True)
class Sampler:
    """Draws segmentations of the texts of one side.

    Draws are a function of their key and of the texts alone, in every process and thread.

    Attributes:
      name: of the side.
      texts: normalised.
      tokens: the deterministic segmentation.
      drawn: lengths of `PLANNED_DRAWS` draws of each text, in tokens.
      strength: see `strength_of`.
      max_tokens: of a draw, with its end; in place of a longer one, the deterministic segmentation
        is read.
    """

    name: str
    texts: TextStore
    tokens: TokenStore
    drawn: Int[np.ndarray, "sentences draws"]
    tokenizer: Tokenizer
    strength: float
    max_tokens: int

    @functools.cached_property
    def too_long(self) -> Bool[np.ndarray, "sentences draws"]:
        """Whether the deterministic segmentation is read in place of each planned draw."""
        return self.drawn >= self.max_tokens

    @functools.cached_property
    def lengths(self) -> Int[np.ndarray, "draws sentences"]:
        """Tokens of each planned draw, or of what is read in its place."""
        return np.where(self.too_long, self.tokens.lengths[:, None], self.drawn).T

    def draw(
        self, number: int, epoch: int, uniform: Callable[[], float], lengths: range
    ) -> Ids | None:
        """Returns a segmentation of text `number` of one of some lengths, in tokens.

        None stands for the deterministic one. After `TRIES` others, it is the planned draw.

        Args:
          epoch: which has a planned draw of one of these lengths.
        """
        planned = epoch % PLANNED_DRAWS
        if self.too_long[number, planned]:
            return None
        sample = functools.partial(self.tokenizer.sample, self.texts[number], self.strength)
        fitting = (ids for _ in range(TRIES) if len(ids := sample(uniform)) in lengths)
        return next(fitting, None) or sample(make_generator(self.name, number, planned))


def make_generator(*key: object) -> Callable[[], float]:
    """Returns a generator of uniform numbers, the same for a key in every process."""
    digest = hashlib.blake2b(" ".join(map(str, key)).encode(), digest_size=8).digest()
    return random.Random(int.from_bytes(digest, "big")).random
