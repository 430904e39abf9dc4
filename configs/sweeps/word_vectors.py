"""Compares pretrained word vectors, from a text file, with random source embeddings.

    python launch.py --config=configs/sweeps/word_vectors.py:glove.100d.txt --workdir=runs/glove
    python launch.py --config=configs/sweeps/word_vectors.py:glove.100d.txt \\
        --workdir=runs/glove_few --config.data.train_subset=5000 --config.train.steps=800

The task is English to German, on all pairs of Tatoeba or on 5,000. The vectors have width 100.
"""

from transformer.config import load_page


def get_config(vectors: str = "glove.100d.txt"):
    """Returns a model with an embedding table per language; it trains in minutes on one core."""
    config = load_page("tatoeba").get_config("deu", "clean")
    config.name = "word_vectors"
    config.model.d_model = 100
    config.model.d_ff = 200
    config.model.num_heads = 2
    config.model.num_encoder_layers = 2
    config.model.num_decoder_layers = 2
    config.model.tied_embeddings = "decoder"
    config.tokenizer.joint = False
    config.tokenizer.vocab_size = 4000
    config.data.batch_tokens = 1024
    config.data.num_buckets = 4
    config.optimizer.warmup_steps = 200
    config.train.steps = 4000
    config.train.evaluate_every = 0
    config.decode.beam_size = 1
    config.evaluate.checkpoint = "last"
    config.evaluate.average_last_n = 1
    config.evaluate.perturbed_sentences = 0
    return config


def sweep(vectors: str = "glove.100d.txt"):
    for name in ("", vectors):
        for seed in range(3):
            yield {"train.source_vectors": name, "seed": seed}
