"""A small language model that memorises a few quotations, word by word.

    python launch.py --config=configs/next_word.py --workdir=runs/next_word

Training takes seconds on two cores. With a causal mask, one forward pass predicts all words of a
sentence.
"""

from transformer.config import default_config


def get_config():
    config = default_config()
    config.name = "next_word"
    config.task = "language_model"

    config.model.d_model = 64
    config.model.d_ff = 128
    config.model.num_heads = 4
    config.model.num_decoder_layers = 2
    config.model.max_length = 128
    config.model.dropout_embedding = config.model.dropout_residual = 0.0

    config.data.source = "quotations"
    config.data.context = 16
    config.data.batch_tokens = 64
    config.tokenizer.kind = "word"
    config.tokenizer.vocab_size = 100

    config.optimizer.schedule = "constant"
    config.optimizer.learning_rate = 1e-3
    config.optimizer.warmup_steps = 10

    config.train.steps = 300
    config.train.label_smoothing = 0.0
    config.train.log_every = 50
    config.train.evaluate_every = 100
    config.train.best_metric = "nll"
    config.decode.temperature = 0.0
    return config
