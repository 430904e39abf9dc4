"""The base model of "Attention Is All You Need" on WMT14 English-German, through TFDS.

    python launch.py --config=configs/transformer_base.py --workdir=runs/base

`wmt14_translate/de-en` (1.6 GB) is downloaded on first use. The paper reports 27.3 BLEU (tokenised,
compound-split) after 100,000 steps of 25,000 source and 25,000 target tokens, which took 12 hours
on 8 GPUs. The sacreBLEU score of such a model is lower by 1 to 1.5.

Differences from the paper: matmuls use bfloat16, pairs are cleaned and limited to 128 subwords, and
averaged weights are used only if they have the best validation score (evaluate.checkpoint).
"""

from transformer.config import default_config


def get_config():
    config = default_config()
    config.name = "transformer_base"

    config.data.source = "tfds"
    config.data.tfds_name = "wmt14_translate/de-en"
    config.data.tfds_fields = ("en", "de")
    config.data.batch_tokens = 25_000
    config.data.batch_multiple = 64
    # The subwords cover letters, digits and symbols, but not thousands of rare characters.
    config.tokenizer.character_coverage = 0.99999
    config.tokenizer.byte_fallback = True
    config.model.dtype = "bfloat16"

    # The paper averages checkpoints saved every ten minutes, a 72nd of its 100,000 steps [6.1].
    config.train.evaluate_every = 1400
    config.train.keep_last = 5
    config.evaluate.average_last_n = 5
    return config
