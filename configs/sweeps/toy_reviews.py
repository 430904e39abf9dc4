"""Does word order matter? Bags of embeddings, a Transformer and an LSTM on toy reviews.

    python launch.py --config=configs/sweeps/toy_reviews.py --workdir=runs/order_of_words

In all kinds of review except "plain", each text has a twin with the same words and the other
class, so a mean of embeddings is right on exactly half of them.
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
        for seed in range(9):  # the Transformer learns double negation with some seeds only
            yield {"model.architecture": kind, "model.bigram_buckets": bigrams, "seed": seed}
