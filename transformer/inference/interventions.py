"""Interventions by name, such as zeros at `encoder.2.self.head.3.output`.

The names of places, where L is a layer and H a head from one, and a sub-layer S is `self`, `cross`
or `feed_forward`:

    encoder.embedding                 the embeddings, with positions
    encoder.L.self.head.H.weights     a head's attention weights, after the softmax
    encoder.L.self.head.H.output      a head's output, before the projection W^O
    encoder.L.S                       a sub-layer's output, before the residual connection
    encoder.L.residual_after_S        the residual stream; in a post-norm model, it is normalised

`*` in a name stands for any characters, and `NAME@3` for one position, from zero: of a source token
in the encoder, and in the decoder of the target token that is read there. In attention weights, it
is the position of the query. `NAME@word` stands for the positions of a word or token.

What is done at a place:

    "zero"                            the value becomes 0
    a number                          the value is multiplied by it
    ("patch", text)                   the value is that of another text, at the same positions
    ("mean", texts)                   the value is the mean over all tokens of the texts
    "uniform" "identity" "previous"   a head's weights are equal for all keys, or all on the
                                      query's position, or all on the position before
    an array                          a head's weights [L, M], or a vector

A text is a str, or (source, target) for a translator, whose own translation is the default target.
Weights are renormalised over the keys that are not masked; if all of these have a weight of zero,
the result is uniform.
"""

import difflib
import fnmatch
import numbers
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float

from transformer.errors import UserError
from transformer.inference.base import Predictor, Variables, source_mask
from transformer.inference.classifier import ClassPredictor
from transformer.inference.translator import Translator
from transformer.model import interventions
from transformer.model.build import has_heads
from transformer.model.classifier import Classifier
from transformer.model.interventions import NO_CHANGE, Change

NONE = -1e9  # the logarithm of a weight of zero
PATTERNS = {
    "uniform": lambda i, j: i == i,
    "identity": lambda i, j: i == j,
    "previous": lambda i, j: (i == j + 1) | ((i == 0) & (j == 0)),
}


class Place(NamedTuple):
    """A place: its key in `model.interventions.variables`, and the layer and head from zero."""

    key: tuple[str, ...]
    layer: int = 0
    head: int | None = None


Changes = dict[tuple[tuple[str, ...], int], Change]  # (key, layer) -> change


def places(model: Any) -> dict[str, Place]:
    """Returns the places of a model by name; raises UserError if it has none."""
    config = model.config
    if not has_heads(config):
        raise UserError(
            f"config.model.architecture={config.architecture} has no places of interventions: they "
            "are for models with config.model.architecture=transformer"
        )
    named: dict[str, Place] = {}
    for side, is_there in (("encoder", config.has_encoder), ("decoder", config.has_decoder)):
        stack, attentions = f"{side}_layers", ["self"]
        if is_there:
            named[f"{side}.embedding"] = Place((f"{side}_embedding",))
        if side == "decoder" and config.has_encoder:
            attentions.append("cross")
        for layer in range(interventions.depth_of(stack, config) if is_there else 0):
            name = f"{side}.{layer + 1}"
            for short in attentions:
                module = f"{short}_attention"
                for head in range(config.num_heads):
                    of_head = f"{name}.{short}.head.{head + 1}"
                    for what, place in (("weights", "weights"), ("output", "heads")):
                        named[f"{of_head}.{what}"] = Place((stack, module, place), layer, head)
            for short in (*attentions, "feed_forward"):
                module = "feed_forward" if short == "feed_forward" else f"{short}_attention"
                key = stack, f"{module}_residual"
                named[f"{name}.{short}"] = Place((*key, "sublayer"), layer)
                named[f"{name}.residual_after_{short}"] = Place((*key, "stream"), layer)
    return named


def select(patterns: Iterable[str], model: Any) -> list[str]:
    """Returns the names that match any of the patterns, in the order of the model."""
    named, patterns = places(model), list(patterns)
    for pattern in patterns:
        if not fnmatch.filter(named, pattern):
            near = difflib.get_close_matches(pattern, named, 3) or [*named][:3]
            raise UserError(f"no place is named {pattern!r}: the nearest are {', '.join(near)}")
    return [name for name in named if any(fnmatch.fnmatchcase(name, p) for p in patterns)]


def resolve(
    changes: Mapping[str, Any], predictor: Predictor, variables: Variables, text: Any = None
) -> Changes:
    """Returns the changes for places by name; see the module.

    Args:
      text: the text, or (source, target), in which words after @ are looked up.
    """
    model: Any = predictor.model
    config, named, resolved = model.config, places(model), {}
    patches = (config.picture_size // config.patch_size) ** 2 if config.patch_size else 0
    longest = config.max_length + patches + 1  # an image has a class token
    for pattern, what in changes.items():
        pattern, at, selector = pattern.partition("@")
        names = select([pattern], model)
        resulting = _values(what, [named[name] for name in names], predictor, variables, longest)
        for name, new in zip(names, resulting, strict=True):
            place = named[name]
            heads = 1 if place.head is None else config.num_heads
            where = np.arange(heads)[:, None] == (place.head or 0)
            if at:
                rows = np.isin(
                    np.arange(longest), _positions(selector, name, predictor, variables, text)
                )
                where = where & rows
            old = resolved.get((place.key, place.layer), NO_CHANGE)
            where = _laid_out(where, place)
            arrays = zip(new, old, strict=True)
            change = Change(*(np.where(where, *each).astype(np.float32) for each in arrays))
            resolved[place.key, place.layer] = change
    return resolved


def add(variables: Variables, changes: Changes, model: Any) -> dict[str, Any]:
    """Returns the variables with the changes as the collection `interventions`."""
    by_key: dict[Any, Any] = {}
    for (key, layer), change in changes.items():
        if len(key) == 1:
            by_key[key] = change
        else:
            by_key.setdefault(key, {})[layer] = change
    part = "encoder" if isinstance(model, Classifier) else ""
    return {**variables, "interventions": interventions.variables(by_key, model.config, part)}


def uniform(rows: Sequence[Changes]) -> list[Changes]:
    """Returns the same changes, all for the same places and with the same shapes.

    One compiled program then does for all of them.
    """
    filled: list[Changes] = [{} for _ in rows]
    for key in dict.fromkeys(key for row in rows for key in row):
        of_place = [row.get(key, NO_CHANGE) for row in rows]
        arrays = [
            np.broadcast_arrays(*map(np.float32, each)) for each in zip(*of_place, strict=True)
        ]
        for row, *each in zip(filled, *arrays, strict=True):
            row[key] = Change(*each)
    return filled


def capture(
    predictor: Any, variables: Variables, batches: Iterable[Any], named: Sequence[Place]
) -> Iterator[list[Float[np.ndarray, "..."]]]:
    """Yields the value of each place for each text of the batches (see `read`), without padding.

    It is [L, M] for the weights of a head, [L, K] for its output, and [L, D] for a vector.
    """

    @jax.jit
    def computed(variables: Variables, batch: Any) -> list[Any]:
        sown = predictor.sown(variables, batch)
        sown = sown["encoder"] if isinstance(predictor.model, Classifier) else sown
        by_place = []
        for key, layer, head in named:
            path: Any = key
            x = interventions.sown(sown, *path)[layer] if len(path) > 1 else sown[path[0]][0]
            if head is not None:
                x = x[:, head] if path[-1] == "weights" else x[:, :, head]
            by_place.append(x)
        return by_place

    for batch in batches:
        if isinstance(predictor, ClassPredictor):
            batch = batch.source
            masks = [source_mask(batch)] * 2
        else:
            masks = predictor.inputs(batch)[2:4]
        sizes: Any = [None if x is None else np.asarray(x).sum(axis=1) for x in masks]
        arrays = jax.device_get(computed(variables, batch))
        for row in range(len(masks[1])):
            trimmed = []
            for (key, *_), array in zip(named, arrays, strict=True):
                side = not key[0].startswith("encoder")
                lengths: list[Any] = [sizes[side][row]]
                if key[-1] == "weights":
                    lengths.append(sizes[side and "self" in key[1]][row])
                trimmed.append(array[row][tuple(map(slice, lengths))])
            yield trimmed


def means(
    predictor: Any, variables: Variables, batches: Iterable[Any], named: Sequence[Place]
) -> list[Float[np.ndarray, "..."]]:
    """Returns the mean value of each place over all tokens of the batches; see `read`.

    A mean of weights is over the texts that have both positions.
    """
    results = []
    of_texts = zip(*capture(predictor, variables, batches, named), strict=True)
    for place, arrays in zip(named, of_texts, strict=True):
        if place.key[-1] != "weights":
            results.append(np.concatenate(arrays).mean(axis=0))
            continue
        shape = np.max([x.shape for x in arrays], axis=0)
        total, count = np.zeros(shape), np.zeros(shape)
        for x in arrays:
            at = tuple(map(slice, x.shape))
            total[at], count[at] = total[at] + x, count[at] + 1
        results.append(total / np.maximum(count, 1))
    return results


def read(predictor: Any, variables: Variables, texts: Sequence[Any]) -> Iterator[Any]:
    """Returns batches of the texts; a translator translates texts without a target."""
    if isinstance(predictor, ClassPredictor):
        numbered = predictor.batches(predictor.read(texts))
    elif isinstance(predictor, Translator):
        alone = [text for text in texts if isinstance(text, str)]
        written = iter(predictor.translate(variables, alone, num_best=1))
        pairs = [(x, next(written)[0].text) if isinstance(x, str) else x for x in texts]
        numbered = predictor.text_batches(*map(list, zip(*pairs, strict=True)))
    else:
        numbered = predictor.text_batches(texts)
    return (batch for _, batch in numbered)


# -- what is done


def _values(
    what: Any, named: Sequence[Place], predictor: Predictor, variables: Variables, longest: int
) -> list[Change]:
    """Returns what is done at each place, for all positions and heads."""
    if isinstance(what, str) and what in PATTERNS:
        i, j = np.arange(longest)[:, None], np.arange(longest)
        logits = np.where(PATTERNS[what](i, j) | np.zeros_like(j, bool), 0.0, NONE)
        if any(place.key[-1] != "weights" for place in named):
            raise UserError(f"{what!r} is for weights: give a place that ends with .weights")
        return [Change(0.0, 1.0, logits)] * len(named)
    if isinstance(what, np.ndarray):
        return [_frozen(what, place, longest) for place in named]
    if what == "zero" or isinstance(what, numbers.Real):
        return [Change(0.0 if what == "zero" else float(what))] * len(named)
    match what:
        case ("patch", text):
            [arrays, *_] = capture(predictor, variables, read(predictor, variables, [text]), named)
        case ("mean", [_, *_] as texts):
            arrays = means(predictor, variables, read(predictor, variables, texts), named)
        case _:
            raise UserError(
                f"{what!r} is no intervention: give zero, a number, uniform, identity, previous, "
                "('patch', text), ('mean', texts) or an array"
            )
    return [_frozen(x, place, longest) for x, place in zip(arrays, named, strict=True)]


def _frozen(array: Float[np.ndarray, "..."], place: Place, longest: int) -> Change:
    """Returns the change of a place to an array, whose rows are positions if it has two axes."""
    if array.ndim == 1:
        return Change(0.0, 1.0, array)
    rows = [(0, longest - len(array)), (0, 0)]
    is_there = np.pad(np.ones((len(array), 1)), rows)
    if place.key[-1] == "weights":
        columns = (0, longest - array.shape[1])
        logits = np.log(np.maximum(array, np.exp(-80.0)))
        return Change(
            1 - is_there, is_there, np.pad(logits, (rows[0], columns), constant_values=NONE)
        )
    change = Change(1 - is_there, is_there, np.pad(array, rows))
    if place.head is not None:  # [1, L, H, K]
        return Change(*(np.asarray(x)[:, None] for x in change))
    return change


def _laid_out(where: Bool[np.ndarray, "H L"], place: Place) -> Bool[np.ndarray, "..."]:
    """Returns a mask of heads and positions that broadcasts to the values of a place."""
    if place.head is None:
        return where.T[None]
    return (where if place.key[-1] == "weights" else where.T)[None, ..., None]


def _positions(
    selector: str, name: str, predictor: Any, variables: Variables, text: Any
) -> list[int]:
    """Returns the positions of a selector, a number or a word, in the text of a place's side."""
    if selector.isdecimal():
        return [int(selector)]
    if text is None:
        raise UserError(f"{name}@{selector} names a word: give the text in which it is")
    attention = predictor.attention(variables, *([text] if isinstance(text, str) else text))
    side = "source_tokens" if name.startswith("encoder") else "target_tokens"
    tokens, spans, joined = getattr(attention, side), [], ""
    if exact := [i for i, token in enumerate(tokens) if token.lstrip("▁") == selector]:
        return exact
    for token in tokens:
        spans.append((len(joined), len(joined) + len(token)))
        joined += token.replace("▁", " ")
    words = [x.span() for x in re.finditer(rf"(?<!\w){re.escape(selector)}(?!\w)", joined)]
    at = [i for i, (a, b) in enumerate(spans) for start, end in words if a < end and start < b]
    if not at:
        raise UserError(
            f"{name}@{selector}: {selector!r} is no token or word of {' '.join(tokens)}"
        )
    return at
