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
from jaxtyping import Float, Int
from ml_collections import ConfigDict

from transformer.data.token_store import ArrayWriter, TextStore, TokenStore
from transformer.data.tokenizer.model import Ids, Tokenizer
from transformer.errors import UserError

# By kind of tokenizer, the key that says how much is drawn.
KEYS = {"bpe": "bpe_dropout", "unigram": "sampling_alpha"}
SIDES = ("both", "source", "target")
PLANNED_DRAWS = 2  # of each text when it is encoded, of which the length of a batch is planned
MARGIN = 0.25  # standard deviations of a draw's length that a batch has room for, above the mean
TRIES = 8  # draws of a text before the deterministic segmentation is taken


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
    return (*strengths, settings.sampling_sides) if any(strengths) else ()


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
            uniform = _generator("plan", number)
            sample = functools.partial(self._tokenizer.sample, text, self._strength, uniform)
            drawn += [len(sample()) for _ in range(PLANNED_DRAWS)]
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
) -> "tuple[Sampler | None, ...]":
    """Returns the sampler of each side, None for one that is not sampled.

    Args:
      arrays: with those of `SampledTexts`.
      names: of the sides.
      tokens: the deterministic segmentation of each side.
      settings: `config.tokenizer`.
      tokenizers: one for both sides, or one each.
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
    """

    name: str
    texts: TextStore
    tokens: TokenStore
    drawn: Int[np.ndarray, "sentences draws"]
    tokenizer: Tokenizer
    strength: float

    @functools.cached_property
    def mean_lengths(self) -> Float[np.ndarray, "sentences"]:
        """Tokens of a draw of each text, on average."""
        return self.drawn.mean(axis=1, dtype=np.float64)

    @functools.cached_property
    def rooms(self) -> Int[np.ndarray, "sentences"]:
        """Tokens that each text should have room for.

        A draw's length has a variance about proportional to its mean. Both are estimated from the
        planned draws. The deterministic segmentation always fits.
        """
        means = self.mean_lengths
        ratio = self.drawn.var(axis=1, ddof=1, dtype=np.float64).sum() / max(1.0, means.sum())
        rooms = np.ceil(means + MARGIN * np.sqrt(ratio * means)).astype(np.int64)
        return np.maximum(rooms, self.tokens.lengths)

    def draw(self, numbers: Sequence[int], room: int, key: tuple[int, ...]) -> list[Ids | None]:
        """Returns segmentations of up to `room` tokens, None of a text whose draws have more.

        Args:
          numbers: of the texts, from zero.
          key: of the draws, which are a function of it and of `numbers`.
        """
        uniform = _generator(self.name, *key)
        return [self._draw(self.texts[number], room, uniform) for number in numbers]

    def _draw(self, text: str, room: int, uniform: Callable[[], float]) -> Ids | None:
        for _ in range(TRIES):
            if len(ids := self.tokenizer.sample(text, self.strength, uniform)) <= room:
                return ids
        return None


def _generator(*key: object) -> Callable[[], float]:
    """A generator of uniform numbers, the same for a key in every process."""
    digest = hashlib.blake2b(" ".join(map(str, key)).encode(), digest_size=8).digest()
    return random.Random(int.from_bytes(digest, "big")).random
