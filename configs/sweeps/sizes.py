"""The base of the included sweeps: a model for two cores, and one for a GPU."""

from configs import multi30k, quickstart


def get_config(size: str = "grammar"):
    """Returns the built-in grammar or `copy` at a size of a minute per run, or Multi30k's paper.

    Raises:
      ValueError: another size.
    """
    if size == "multi30k":
        return multi30k.get_config()
    if size not in ("grammar", "copy"):
        raise ValueError(f"size '{size}' is unknown: choose grammar, copy or multi30k")
    config = quickstart.get_config()
    config.model.d_model = 64
    config.model.d_ff = 128
    config.model.positions = "sinusoidal"
    config.data.train_size = 20_000
    config.data.length_generalization_size = 200
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
        config.tokenizer.vocab_size = 20  # 16 letters, and four that are taken
    return config
