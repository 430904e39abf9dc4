"""IMDb reviews: the mean of embeddings, which beats small Transformers there.

    python launch.py --config=configs/imdb.py --workdir=runs/imdb --config.data.path=DIR
    python launch.py --config=configs/imdb.py:bigrams --workdir=runs/imdb_bigrams \\
        --config.data.path=DIR
    python launch.py --config=configs/imdb.py:transformer --workdir=runs/imdb_transformer \\
        --config.data.path=DIR
"""

from configs import base


def get_config(model: str = "bag"):
    config = base.get_config()
    config.name = "imdb"
    config.task = "classification"

    config.model.kind = "transformer" if model == "transformer" else "bag"
    config.model.bag_bigrams = 200_000 if model == "bigrams" else 0
    config.model.d_model = 64
    config.model.d_ff = 128
    config.model.num_heads = 4
    config.model.num_encoder_layers = 2
    config.model.norm_position = "pre"
    config.model.dropout_embedding = 0.3

    config.data.source = "files"
    config.data.train_source = "train.tsv.gz"
    config.data.text_field = "1"
    config.data.label_field = "0"
    config.data.set_aside = "end"
    config.data.validation_size = 2500
    config.data.test_size = 5000
    config.data.max_tokens = 400
    config.data.max_unknown_share = 0.1
    config.data.batch_tokens = 8192
    config.data.num_buckets = 6
    config.tokenizer.kind = "bpe"
    config.tokenizer.vocab_size = 16_000
    config.tokenizer.normalization = "nmt_nfkc_cf"

    config.optimizer.schedule = "constant"
    config.optimizer.learning_rate = 3e-3
    config.optimizer.warmup_steps = 100
    config.optimizer.beta2 = 0.999

    config.train.epochs = 12.0
    config.train.evaluate_every = 0
    config.train.patience = 3
    config.train.label_smoothing = 0.0
    config.train.best_metric = "accuracy"
    config.decode.batch_size = 128
    return config
