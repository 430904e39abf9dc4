"""A classifier that learns addition modulo 97, and generalises long after it has memorised.

    python launch.py --config=configs/addition.py --workdir=runs/addition

Training takes three minutes on two cores; all held-out sums are right after 3,000 to 4,000 steps.
docs/addition.md shows what the model computes.
"""

from transformer.config import default_config


def get_config():
    config = default_config()
    config.name = "addition"
    config.task = "classification"

    config.model.d_model = 128
    config.model.d_ff = 512
    config.model.num_heads = 4
    config.model.num_encoder_layers = 1
    config.model.norm_position = "pre"
    config.model.pooling = "first"
    config.model.positions = "learned"
    config.model.dropout_embedding = config.model.dropout_residual = 0.0

    config.data.source = "addition"
    config.data.train_size = 4704  # half of the 97 * 97 sums
    config.data.validation_size = config.data.test_size = 400
    config.data.max_tokens = 4
    config.data.batch_tokens = 2048
    config.data.num_buckets = 1
    config.tokenizer.kind = "word"
    config.tokenizer.vocab_size = 200

    config.optimizer.name = "adamw"
    config.optimizer.weight_decay = 1.0
    config.optimizer.clip_norm = 1.0
    config.optimizer.schedule = "constant"
    config.optimizer.learning_rate = 1e-3
    config.optimizer.warmup_steps = 10

    config.train.steps = 6000
    config.train.label_smoothing = 0.0
    config.train.evaluate_every = 100
    config.train.best_metric = "accuracy"
    return config
