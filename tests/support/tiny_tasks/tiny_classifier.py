"""A tiny classifier that tests share: its config, and its labelled texts."""

from transformer.data.pairs import Labelled

CONFIG = """
from configs import base

def get_config():
    config = base.get_config()
    config.task = "classification"
    config.model.d_model = 16
    config.model.d_ff = 16
    config.model.num_heads = 2
    config.model.num_encoder_layers = 1
    config.model.pooling = "attention"
    config.data.source = "files"
    config.data.path = "PATH"
    config.data.train_source = "train.tsv"
    config.data.validation_size = 12
    config.data.test_size = 24
    config.data.max_tokens = 12
    config.data.batch_tokens = 96
    config.data.num_buckets = 1
    config.data.cache_dir = "PATH/cache"
    config.tokenizer.kind = "word"
    config.tokenizer.vocab_size = 40
    config.optimizer.schedule = "constant"
    config.optimizer.learning_rate = 1e-2
    config.optimizer.warmup_steps = 1
    config.train.steps = 40
    config.train.log_every = 20
    config.train.evaluate_every = 20
    config.train.best_metric = "accuracy"
    config.decode.batch_size = 8
    config.evaluate.checkpoint = "last"
    return config
"""
PRAISE = {"superb": "good", "lovely": "good", "fine": "good", "dull": "bad", "silly": "bad"}
ITEMS = [
    Labelled(f"{opening}the {noun} is {word} {end}", label)
    for opening in ("", "well , ")
    for noun in ("plot", "cast", "film", "pace")
    for word, label in PRAISE.items()
    for end in (".", "!", "indeed .")
]
ROWS = ["label\ttext", *(f"{item.label}\t{item.text}" for item in ITEMS)]
