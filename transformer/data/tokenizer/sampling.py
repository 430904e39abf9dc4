"""How strongly segmentations are drawn, so that a text is read in several ways.

Source: BPE-dropout, Provilkov et al. 2020; subword regularization, Kudo 2018.
"""

import hashlib
import random
from collections.abc import Sequence

from ml_collections import ConfigDict

from transformer.data.tokenizer.model import Tokenizer
from transformer.errors import UserError

# By kind of tokenizer, the key that says how much is drawn.
KEYS = {"bpe": "bpe_dropout", "unigram": "sampling_alpha"}
SIDES = ("both", "source", "target")


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
    """Returns the settings that change how segmentations are drawn; none if none is drawn."""
    strengths = tuple(settings[key] for key in KEYS.values())
    return (*strengths, settings.sampling_sides) if any(strengths) else ()


def make_generator(*key: object) -> random.Random:
    """Returns a generator of random numbers, the same for a key in every process."""
    digest = hashlib.blake2b(" ".join(map(str, key)).encode(), digest_size=8).digest()
    return random.Random(int.from_bytes(digest, "big"))
