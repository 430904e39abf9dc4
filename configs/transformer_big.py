"""The big model of "Attention Is All You Need" on WMT14 English-German, through TFDS.

    python launch.py --config=configs/transformer_big.py --workdir=runs/big

The paper reports 28.4 BLEU (tokenised, compound-split) after 300,000 steps, 3.5 days on 8 GPUs.
"""

from transformer.config import load_page


def get_config():
    config = load_page("transformer_base").get_config()
    config.name = "transformer_big"

    config.model.d_model = 1024
    config.model.d_ff = 4096
    config.model.num_heads = 16
    config.model.dropout_embedding = 0.3
    config.model.dropout_residual = 0.3

    config.train.steps = 300_000
    config.train.evaluate_every = 600  # about ten minutes in the paper
    config.train.keep_last = 20
    config.evaluate.average_last_n = 20
    return config
