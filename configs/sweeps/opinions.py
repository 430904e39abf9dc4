"""Does the order of words matter? Bags, a Transformer and an LSTM on reviews that only it decides.

    python launch.py --config=configs/sweeps/opinions.py --workdir=runs/order_of_words

Of every kind of review but "plain", each text has a twin of the same words and the other class: a
mean of embeddings is right on half of them, whatever it has learned.
"""

from configs import opinions


def get_config():
    return opinions.get_config()


def sweep():
    models = (("bag", 0), ("bag", 10_000), ("transformer", 0), ("recurrent", 0))
    for kind, bigrams in models:
        for seed in range(3):
            yield {"model.kind": kind, "model.bag_bigrams": bigrams, "seed": seed}
