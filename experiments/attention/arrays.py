"""The attention of one text as arrays, with the tokens that name their rows and columns."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from transformer.analysis.attention import END_OF_SENTENCE, KINDS, Attention, names_of
from transformer.storage.files import write_arrays


@dataclasses.dataclass(frozen=True)
class AttentionMaps:
    """The attention weights of one sentence pair.

    Attributes:
      weights: float32 arrays by kind, of those that the model has: `encoder_self` [layers, H, M,
        M], `decoder_self` [layers, H, L, L], `cross` [layers, H, L, M]. Each row sums to one.
      source_tokens: the M tokens the encoder reads; the last is `</s>`.
      target_tokens: the L tokens the decoder reads, its input: the first is `<s>`.
      written_tokens: the L tokens it writes, each after the target token of its place: the last
        is `</s>`. They name the rows of `decoder_self` and `cross`.
      value_norms: float32 arrays by kind, [layers, H, keys]: the length of what a key hands on
        through a head, see `transformer.analysis.attention.Attention`; none of models that lack
        them.

    Raises:
      ValueError: a kind is unknown, or a shape does not fit the tokens.
    """

    weights: dict[str, np.ndarray]
    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    written_tokens: tuple[str, ...]
    value_norms: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if unknown := set(self.weights) - set(KINDS):
            raise ValueError(f"weights holds {sorted(unknown)}: it may hold {sorted(KINDS)}")
        for kind, weights in self.weights.items():
            queries, keys = self.tokens(kind)
            shape = np.shape(weights)
            if len(shape) != 4 or 0 in shape or shape[2:] != (len(queries), len(keys)):
                raise ValueError(
                    f"{kind} weights of shape {shape} do not fit {len(queries)} query tokens and "
                    f"{len(keys)} key tokens: [layers, heads, {len(queries)}, {len(keys)}] is "
                    "needed, with at least one of each"
                )
        for kind, norms in self.value_norms.items():
            layers, heads, _, keys = self.weights[kind].shape
            if np.shape(norms) != (layers, heads, keys):
                raise ValueError(
                    f"{kind} value norms of shape {np.shape(norms)} do not fit the weights: "
                    f"[{layers}, {heads}, {keys}] is needed"
                )

    @classmethod
    def of(cls, seen: Attention) -> "AttentionMaps":
        """The maps of the attention of a model."""
        tokens = map(tuple, (seen.source_tokens, seen.target_tokens, seen.written_tokens))
        return cls(dict(seen.weights), *tokens, value_norms=dict(seen.value_norms))

    def has(self, kind: str, layer: int | None, head: int | None) -> bool:
        """Whether there is such a layer and head, from 1, of a kind; None stands for any."""
        shape = self.weights[kind].shape if kind in self.weights else (0, 0)
        asked = zip((layer, head), shape[:2], strict=True)
        return all(1 <= (1 if number is None else number) <= count for number, count in asked)

    def tokens(self, kind: str) -> tuple[Sequence[str], Sequence[str]]:
        """The tokens that name the rows (queries) and the columns (keys) of a kind."""
        return names_of(self, kind)


def save_maps(maps: AttentionMaps, folder: Path) -> None:
    """Writes `<folder>/attention.npz`; the folder is made if missing.

    It holds the weights by kind, `value_norms/<kind>`, and `source_tokens`, `target_tokens` (read)
    and `written_tokens` as arrays of strings; `np.load` reads it without pickle.
    """
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {
        "source_tokens": np.array(maps.source_tokens, dtype=np.str_),
        "target_tokens": np.array(maps.target_tokens, dtype=np.str_),
        "written_tokens": np.array(maps.written_tokens, dtype=np.str_),
        **maps.weights,
        **{f"value_norms/{kind}": norms for kind, norms in maps.value_norms.items()},
    }
    write_arrays(folder / "attention.npz", arrays)


def hide_end_of_sentence(maps: AttentionMaps) -> AttentionMaps:
    """The maps without the source's `</s>`, each row brought back to a sum of one.

    Trained heads rest on `</s>` when they have nothing to fetch, and that column then outshines
    the rest. It goes as a key from `cross` and `encoder_self`, and as a query from
    `encoder_self` too: one list of tokens then names both axes, and the map stays square.
    `decoder_self` stays as it is, for the decoder never reads `</s>`.

    Args:
      maps: maps whose last source token is `</s>`.

    Returns:
      New maps with M - 1 source tokens. A row whose whole mass was on `</s>` becomes zeros.

    Raises:
      ValueError: the last source token is not `</s>` (hidden already?), or it is the only one.
    """
    last = maps.source_tokens[-1]
    if last != END_OF_SENTENCE:
        raise ValueError(f"the last source token is {last!r}: no {END_OF_SENTENCE!r} to hide")
    if len(maps.source_tokens) == 1:
        raise ValueError(f"the only source token is {END_OF_SENTENCE!r}: hiding it leaves none")
    weights, value_norms = dict(maps.weights), dict(maps.value_norms)
    if "encoder_self" in weights:
        weights["encoder_self"] = _renormalised(weights["encoder_self"][:, :, :-1, :-1])
    if "cross" in weights:
        weights["cross"] = _renormalised(weights["cross"][:, :, :, :-1])
    for kind in value_norms.keys() & {"encoder_self", "cross"}:
        value_norms[kind] = value_norms[kind][..., :-1]
    return dataclasses.replace(
        maps, weights=weights, source_tokens=maps.source_tokens[:-1], value_norms=value_norms
    )


def _renormalised(weights: np.ndarray) -> np.ndarray:
    """The weights divided by their rows' sums; rows without mass stay zeros."""
    total = weights.sum(axis=-1, keepdims=True, dtype=np.float64)
    shares = np.zeros_like(weights)
    return np.divide(weights, total, out=shares, where=total > 0, casting="same_kind")
