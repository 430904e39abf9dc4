"""A tiny translator in both directions, whose texts have tags: its config."""

CONFIG = """
from configs import directions

def get_config():
    config = directions.get_config()
    config.model.d_model = 8
    config.model.d_ff = 8
    config.model.num_heads = 2
    config.model.num_encoder_layers = 1
    config.model.num_decoder_layers = 1
    config.model.max_length = 64
    config.data.train_size = 100
    config.data.validation_size = 3
    config.data.test_size = 4
    config.data.batch_tokens = 512
    config.data.num_buckets = 1
    config.data.cache_dir = "CACHE"
    config.tokenizer.vocab_size = 150
    config.train.steps = 2
    config.train.evaluate_every = 2
    config.train.best_metric = "loss"
    config.decode.max_extra = 2
    config.decode.beam_size = 1
    config.decode.batch_size = 8
    config.evaluate.bootstrap = 10
    config.evaluate.checkpoint = "last"
    config.evaluate.average_last_n = 1
    config.evaluate.snapshot_statistics = 0
    config.evaluate.snapshot_sentences = 0
    return config
"""
