"""A subword language model on the One Billion Word benchmark (Chelba et al. 2014).

    python launch.py --config=configs/lm1b.py --workdir=runs/lm1b

Training takes about a day on a GPU or TPU. TensorFlow Datasets downloads the corpus (1.7 GB).
Sentences are packed into sequences of 256 tokens, but do not attend to each other. The model size
and training budget are those of Flax's example, which reports 3.127 nats per subword. Perplexities
of models with different vocabularies are not comparable, but bits per byte are.
"""

from transformer.config import default_config


def get_config():
    config = default_config()
    config.name = "lm1b"
    config.task = "language_model"

    config.model.norm_position = "pre"
    config.model.dtype = "bfloat16"
    config.model.d_ff = 2048

    config.data.source = "tfds"
    config.data.tfds_name = "lm1b"
    config.data.tfds_fields = ("text",)
    config.data.tfds_validation = "test[:5000]"
    config.data.tfds_test = "test[5000:]"
    config.data.context = 256
    config.data.batch_tokens = 256 * 256
    config.tokenizer.vocab_size = 30_000
    config.tokenizer.byte_fallback = True

    config.optimizer.name = "adamw"
    config.optimizer.weight_decay = 0.1
    config.optimizer.schedule = "inverse_sqrt"
    config.optimizer.learning_rate = 1.6e-3
    config.optimizer.warmup_steps = 1000

    config.train.steps = 500_000
    config.train.label_smoothing = 0.0
    config.train.best_metric = "nll"
    return config
