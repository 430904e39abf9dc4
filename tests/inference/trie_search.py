"""Beam search where the logits after every prefix are a table, and what trying everything finds."""

import functools
import itertools

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from transformer.decoding.search import Rule, beam_search

BOS_ID, EOS_ID = 1, 2
VOCAB, STEPS, MAX_LENGTHS = 4, 4, [4, 2, 1, 0, 3]
# There are 1 + 3 + 9 + 27 translations of at most four tokens; of each length at most 36
# continuations are possible, as at the limit only ends are.
WIDE, HOW_MANY = 41, [0, 1, 4, 13, 40]


def trie_size(vocab, steps):
    return sum(vocab**t for t in range(steps))


@flax.struct.dataclass
class Trie:
    """A cache that knows each hypothesis' whole prefix, as a number of a node."""

    count: jax.Array
    node: jax.Array

    def reorder(self, parents):
        return self.replace(node=jnp.take_along_axis(self.node, parents, axis=1))


def next_node(node, token, vocab):
    return node * vocab + token + 1  # in order of breadth; the root is 0


def table_step(table, tokens, cache):
    child = next_node(cache.node, tokens, table.shape[-1])
    node = jnp.where(cache.count == 0, 0, child)  # the begin token leads to the root
    logits = jax.vmap(lambda rows, nodes: rows[nodes])(table, node)
    return logits, Trie(cache.count + 1, node)


@functools.partial(jax.jit, static_argnames=("beam_size", "steps", "penalty", "alpha", "forbidden"))
def compiled_trie_search(table, max_lengths, beam_size, steps, penalty, alpha, prompts, forbidden):
    step = functools.partial(table_step, table)
    cache = Trie(jnp.int32(0), jnp.zeros((len(table), beam_size), jnp.int32))
    rule = Rule(beam_size, BOS_ID, EOS_ID, penalty, alpha, forbidden)
    return beam_search(step, cache, max_lengths, rule, steps, prompts)


def trie_search(
    table,
    max_lengths,
    beam_size,
    penalty="none",
    alpha=0.6,
    steps=STEPS,
    prompts=None,
    forbidden=(),
):
    """Beam search where the logits after every prefix are a table, [B, nodes, V]."""
    table, max_lengths = jnp.asarray(table, jnp.float32), jnp.asarray(max_lengths, jnp.int32)
    rest = beam_size, steps, penalty, alpha, prompts, forbidden
    return jax.tree.map(np.asarray, compiled_trie_search(table, max_lengths, *rest))


def found(hypotheses, sentence):
    """[(score, tokens)] of one sentence, empty places left out."""
    tokens, lengths, scores, _ = (x[sentence] for x in hypotheses)
    return [
        (float(s), tuple(t[:n].tolist()))
        for t, n, s in zip(tokens, lengths, scores, strict=True)
        if n
    ]


def by_hand_penalty(name, length, alpha):
    return {"gnmt": ((5 + length) / 6) ** alpha, "average": length**alpha, "none": 1.0}[name]


def all_translations(vocab, limit):
    """Every sequence of at most `limit` tokens whose only end is its last token."""
    others = [token for token in range(vocab) if token != EOS_ID]
    for length in range(1, limit + 1):
        for tokens in itertools.product(others, repeat=length - 1):
            yield (*tokens, EOS_ID)


def log_softmax(logits):
    logits = np.float64(logits)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def log_probability(table, tokens):
    total, node = 0.0, 0
    for token in tokens:
        total += table[node, token]
        node = next_node(node, token, table.shape[-1])
    return total
