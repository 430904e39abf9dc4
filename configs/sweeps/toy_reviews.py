"""Compares bags of embeddings, a Transformer and an LSTM on toy reviews where word order matters.

    python launch.py --config=configs/sweeps/toy_reviews.py --workdir=runs/order_of_words

For every review of a kind other than "plain", there is a review with the same words and the other
class, so that the mean of embeddings classifies exactly half of these reviews correctly.
"""

from transformer.config import load_page


def get_config():
    return load_page("toy_reviews").get_config()


def sweep():
    models = (
        ("bag_of_embeddings", 0),
        ("bag_of_embeddings", 10_000),
        ("transformer", 0),
        ("recurrent", 0),
    )
    for kind, bigrams in models:
        for seed in range(9):  # only some seeds of the Transformer learn double negation
            yield {"model.architecture": kind, "model.bigram_buckets": bigrams, "seed": seed}
