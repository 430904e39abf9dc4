"""A corpus of pairs, cleaned and encoded as in training."""

from transformer.data.parallel.corpus import Corpus, encode_corpora
from transformer.data.parallel.training_pairs import read_training_pairs


def prepare_corpus(pairs, data, settings, folder=None, held_out=None, initial=None) -> Corpus:
    text = read_training_pairs(pairs, data, held_out or {})
    return encode_corpora([text], data, settings, folder, initial=initial)
