"""Multi30k English to German, with the Transformer-Tiny of Wu et al. 2021 (Revisit-MMT on GitHub).

    python launch.py --config=configs/multi30k.py --mode=fetch
    python launch.py --config=configs/multi30k.py --workdir=runs/multi30k_gpu

The first command downloads the text (2 MB). The 8,000 steps need a GPU; on two cores, use
`multi30k_2cores.py`. Wu et al. report 41.02 BLEU, tokenised and lowercased, on test_2016_flickr.
`--config.data.path=DIR` reads your own folder with the raw text files train, val and
test_2016_flickr, each with the suffixes `.en` and `.de`, plain or gzip.
"""

from transformer.config import default_config


def get_config():
    config = default_config()
    config.name = "multi30k"

    config.model.d_model = 128
    config.model.d_ff = 256
    config.model.num_heads = 4
    config.model.num_encoder_layers = 4
    config.model.num_decoder_layers = 4
    config.model.positions = "split"
    config.model.tied_embeddings = "all"
    config.model.attention_bias = True
    config.model.dropout_embedding = 0.3
    config.model.dropout_residual = 0.3
    config.model.max_length = 256

    config.data.source = "files"
    config.data.fetch = "multi30k"
    config.data.train_source, config.data.train_target = "train.en", "train.de"
    config.data.validation_source, config.data.validation_target = "val.en", "val.de"
    config.data.test_source = "test_2016_flickr.en"
    config.data.test_target = "test_2016_flickr.de"
    config.data.batch_tokens = 8192  # the paper uses two devices with 4,096 each
    config.data.num_buckets = 4  # compilation takes 20 s per shape on a GPU, training a minute
    config.tokenizer.vocab_size = 10_000
    config.tokenizer.byte_fallback = True

    config.optimizer.schedule = "inverse_sqrt"
    config.optimizer.learning_rate = 0.005
    config.optimizer.warmup_steps = 2000
    config.optimizer.clip_norm = 25.0

    config.train.steps = 8000
    config.train.evaluate_every = 0
    config.train.patience = 10
    config.train.best_metric = "loss"

    config.decode.beam_size = 5
    config.decode.length_penalty = "average"
    config.decode.alpha = 1.0
    config.decode.max_extra = 20
    config.evaluate.average_last_n = 10
    config.evaluate.moses = "de"
    return config
