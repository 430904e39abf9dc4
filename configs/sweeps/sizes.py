"""The base configs of the included sweeps."""

from transformer.config import load_page


def get_config(size: str = "grammar"):
    """Returns a config for the built-in grammar, `copy` or MNIST that trains for a minute per run,
    or one for Multi30k that trains for 15 epochs, 8 to 12 minutes per run on one core.

    Raises:
      ValueError: the size is unknown.
    """
    if size == "multi30k":
        return _small_multi30k()
    if size == "mnist":
        return _small_mnist()
    if size not in ("grammar", "copy"):
        raise ValueError(f"size '{size}' is unknown: choose grammar, copy, mnist or multi30k")
    config = load_page("quickstart").get_config()
    config.model.d_model = 64
    config.model.d_ff = 128
    config.model.positions = "sinusoidal"
    config.data.train_size = 20_000
    config.data.length_generalization_size = 200
    config.optimizer.learning_rate = 0.01
    config.optimizer.warmup_steps = 100
    config.train.steps = 600
    config.train.evaluate_every = 150
    config.evaluate.max_sentences = 100
    config.evaluate.average_last_n = 1
    config.evaluate.checkpoint = "last"
    config.decode.beam_size = 1
    if size == "copy":
        config.data.source = "copy"
        config.tokenizer.kind = "word"
        config.tokenizer.vocab_size = 20  # 16 letters and four special tokens
    return config


def _small_multi30k():
    """Returns `multi30k_2cores.py` with half the layers, fewer subwords, less dropout, and smaller
    batches to learn more per minute; it uses neither beam search nor checkpoint averaging."""
    config = load_page("multi30k_2cores").get_config("clean")
    config.model.num_encoder_layers = 2
    config.model.num_decoder_layers = 2
    config.model.dropout_embedding = 0.1
    config.model.dropout_residual = 0.1
    config.tokenizer.vocab_size = 4000
    config.data.batch_tokens = 2048
    config.data.num_buckets = 8
    config.optimizer.learning_rate = 0.008
    config.optimizer.warmup_steps = 400
    config.train.steps = 3000
    config.train.evaluate_every = 1000
    config.decode.beam_size = 1
    config.evaluate.max_sentences = 200
    config.evaluate.checkpoint = "last"
    config.evaluate.average_last_n = 1
    config.evaluate.perturbed_sentences = 0
    config.evaluate.snapshot_statistics = 0
    return config


def _small_mnist():
    config = load_page("mnist").get_config()
    config.model.patch_size = 7
    config.model.d_model = 64
    config.model.d_ff = 128
    config.model.num_encoder_layers = 3
    config.data.augment = ""
    config.data.batch_tokens = 2176  # 128 images with 16 patches and a class token each
    config.optimizer.learning_rate = 1e-3
    config.train.steps = 1000
    config.train.evaluate_every = 100
    config.evaluate.checkpoint = "last"
    return config
