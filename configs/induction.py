"""A language model of repeated random sequences, which learns induction heads.

    python launch.py --config=configs/induction.py --workdir=runs/induction

Training takes a minute on two cores, and then all letters of the second half are predicted.
docs/induction.md shows the heads; with `--config.model.num_decoder_layers=1`, there are none.
"""

from transformer.config import default_config


def get_config():
    config = default_config()
    config.name = "induction"
    config.task = "language_model"

    config.model.d_model = 64
    config.model.d_ff = 64
    config.model.num_heads = 2
    config.model.num_decoder_layers = 2
    config.model.norm_position = "pre"
    config.model.positions = "rotary"
    config.model.max_length = 128
    config.model.dropout_embedding = config.model.dropout_residual = 0.0

    config.data.source = "repeated"
    config.data.context = 128
    config.data.batch_tokens = 4096
    config.tokenizer.kind = "word"
    config.tokenizer.vocab_size = 100

    config.optimizer.schedule = "constant"
    config.optimizer.learning_rate = 3e-3
    config.optimizer.warmup_steps = 100

    config.train.steps = 1500
    config.train.label_smoothing = 0.0
    config.train.log_every = 25
    config.train.evaluate_every = 50
    config.train.best_metric = "nll"
    config.decode.temperature = 0.0
    return config
