"""A tiny language model that tests share: its config, and its lines of text."""

CONFIG = """
from configs import base

def get_config():
    config = base.get_config()
    config.task = "language_model"
    config.model.d_model = 16
    config.model.d_ff = 16
    config.model.num_heads = 2
    config.model.num_decoder_layers = 1
    config.data.source = "files"
    config.data.path = "PATH"
    config.data.train_source = "text"
    config.data.test_fraction = 0.1
    config.data.context = 12
    config.data.batch_tokens = 96
    config.data.cache_dir = "PATH/cache"
    config.tokenizer.normalization = "identity"
    config.tokenizer.kind = "word"
    config.tokenizer.vocab_size = 40
    config.optimizer.schedule = "constant"
    config.optimizer.learning_rate = 1e-2
    config.optimizer.warmup_steps = 1
    config.train.steps = 60
    config.train.log_every = 20
    config.train.evaluate_every = 30
    config.train.label_smoothing = 0.0
    config.train.best_metric = "nll"
    config.model.positions = "learned"
    config.model.max_length = 12
    config.decode.batch_size = 3
    config.decode.max_new_tokens = 9
    return config
"""
LINES = [f"{a} {b} {c}" for a in ("one", "two") for b in ("red", "blue") for c in ("cat", "dog")]
