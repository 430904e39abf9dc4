"""A Transformer for handwritten digits, from MNIST or (with no download) from scikit-learn.

    python launch.py --mode=fetch --config=configs/mnist.py
    python launch.py --config=configs/mnist.py --workdir=runs/mnist
    python launch.py --config=configs/mnist.py:digits --workdir=runs/digits

docs/results/pictures.md reports the scores.
"""

from transformer.config import default_config


def get_config(corpus: str = "mnist"):
    """Returns the experiment on a data set.

    Args:
      corpus: "mnist" | "digits", which has 1,797 images of 8 x 8 pixels.

    Raises:
      ValueError: the corpus is unknown.
    """
    if corpus not in ("mnist", "digits"):
        raise ValueError(f"corpus '{corpus}' is unknown: choose mnist or digits")
    config = default_config()
    config.name = "mnist"
    config.task = "image_classification"

    config.model.patch_size = 4 if corpus == "mnist" else 2
    config.model.picture_size = 28 if corpus == "mnist" else 8
    config.model.picture_channels = 1
    config.model.d_model = 96
    config.model.d_ff = 192
    config.model.num_heads = 4
    config.model.num_encoder_layers = 4
    config.model.norm_position = "pre"
    config.model.positions = "learned"
    config.model.max_length = 64
    config.model.pooling = "mean"

    config.data.source = "idx" if corpus == "mnist" else "digits"
    config.data.fetch = "mnist" if corpus == "mnist" else ""
    config.data.ink = True
    config.data.augment = "crop+rotate" if corpus == "mnist" else ""
    config.data.train_source = "train-images-idx3-ubyte"
    config.data.train_target = "train-labels-idx1-ubyte"
    config.data.test_source = "t10k-images-idx3-ubyte"
    config.data.test_target = "t10k-labels-idx1-ubyte"
    config.data.validation_size = 5000 if corpus == "mnist" else 200
    config.data.test_size = 300  # used for digits, which has no test set
    config.data.batch_tokens = 6400
    config.data.num_buckets = 1

    config.optimizer.name = "muon"
    config.optimizer.schedule = "cosine"
    config.optimizer.learning_rate = 3e-3
    config.optimizer.warmup_steps = 100

    config.train.steps = 4000 if corpus == "mnist" else 500
    config.train.label_smoothing = 0.0
    config.train.evaluate_every = 500 if corpus == "mnist" else 100
    config.train.best_metric = "accuracy"
    return config
