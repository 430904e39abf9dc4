"""Classification of synthetic toy reviews with classes that depend on word order.

    python launch.py --config=configs/toy_reviews.py --workdir=runs/toy_reviews
    python launch.py --config=configs/toy_reviews.py:bag_of_embeddings --workdir=runs/toy_bag

docs/results/toy_reviews.md compares the models.
"""

from transformer.config import default_config


def get_config(model: str = "transformer"):
    """Returns the experiment with a Transformer, a bag of embeddings, or a recurrent model.

    Args:
      model: "transformer" | "bag_of_embeddings" | "bigrams" (the same, and bigrams) | "recurrent".

    Raises:
      ValueError: the model is unknown.
    """
    if model not in ("transformer", "bag_of_embeddings", "bigrams", "recurrent"):
        raise ValueError(
            f"model '{model}' is unknown: "
            "choose transformer, bag_of_embeddings, bigrams or recurrent"
        )
    config = default_config()
    config.name = "toy_reviews"
    config.task = "classification"

    config.model.architecture = "bag_of_embeddings" if model == "bigrams" else model
    config.model.bigram_buckets = 10_000 if model == "bigrams" else 0
    config.model.d_model = 64
    config.model.d_ff = 128
    config.model.num_heads = 4
    config.model.num_encoder_layers = 2
    config.model.norm_position = "pre"

    config.data.source = "toy_reviews"
    config.data.train_size = 8000
    config.data.validation_size = 500
    config.data.test_size = 1000
    config.data.max_tokens = 64
    config.data.batch_tokens = 1024
    config.data.num_buckets = 4
    config.tokenizer.kind = "word"
    config.tokenizer.vocab_size = 1000

    config.optimizer.schedule = "cosine"
    config.optimizer.learning_rate = 3e-3
    config.optimizer.warmup_steps = 100

    config.train.steps = 2000
    config.train.label_smoothing = 0.0
    config.train.evaluate_every = 250
    config.train.best_metric = "accuracy"
    return config
