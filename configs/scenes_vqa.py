"""Visual question answering on generated scenes, with a Transformer or a baseline model.

    python launch.py --config=configs/scenes_vqa.py --workdir=runs/scenes
    python launch.py --config=configs/scenes_vqa.py:text_only --workdir=runs/scenes_text_only

docs/results/pictures.md compares the models.
"""

from transformer.config import default_config

MODELS = ("transformer", "text_only", "bag_of_patches", "cnn_lstm")


def get_config(model: str = "transformer"):
    """Returns the experiment with a Transformer or a baseline model.

    Args:
      model: "transformer" | "text_only", the Transformer with blank images | "bag_of_patches" |
        "cnn_lstm".

    Raises:
      ValueError: the model is unknown.
    """
    if model not in MODELS:
        raise ValueError(f"model '{model}' is unknown: choose one of {', '.join(MODELS)}")
    config = default_config()
    config.name = "scenes_vqa"
    config.task = "visual_question_answering"

    architectures = {"bag_of_patches": "bag_of_embeddings", "cnn_lstm": "recurrent"}
    config.model.architecture = architectures.get(model, "transformer")
    config.data.blind = model == "text_only"
    config.model.patch_size = 12
    config.model.picture_size = 48
    config.model.d_model = 64
    config.model.d_ff = 128
    config.model.num_heads = 4
    # With head size 16, where rotary positions rotate all dimensions, "same" is hardly learnt.
    config.model.head_size = 32
    config.model.num_encoder_layers = 6
    config.model.norm_position = "pre"
    # Without distances in rows and columns, "left of" stays at chance level.
    config.model.positions = "learned+grid_rotary+grid_bias"
    config.model.max_length = 64
    config.model.pooling = "first"
    config.model.dropout_embedding = 0.0
    config.model.dropout_residual = 0.0

    config.data.source = "scenes"
    # With only 60,000 scenes, the model overfits before it learns relations between two objects.
    config.data.train_size = 200_000
    config.data.validation_size = 1000
    config.data.test_size = 2000
    config.data.max_tokens = 20
    config.data.batch_tokens = 2048
    config.data.num_buckets = 3
    config.tokenizer.kind = "word"
    config.tokenizer.vocab_size = 100

    config.optimizer.name = "muon"
    config.optimizer.schedule = "wsd"
    config.optimizer.learning_rate = 1e-3
    config.optimizer.warmup_steps = 200

    config.train.steps = 10_000
    config.train.label_smoothing = 0.0
    config.train.evaluate_every = 1000
    config.train.best_metric = "accuracy"
    return config
