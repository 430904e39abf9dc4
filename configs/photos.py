"""A Transformer that classifies your own photos, answers questions about them, or captions them.

    python launch.py --config=configs/photos.py --workdir=runs/photos --config.data.path=FOLDER

docs/pictures.md describes what the folder must contain.
"""

from transformer.config import default_config

TASKS = {
    "classes": "image_classification",
    "questions": "visual_question_answering",
    "captions": "captioning",
}


def get_config(label: str = "classes"):
    """Returns the experiment for a label type.

    Args:
      label: "classes", with one subfolder of photos per class | "questions", with questions and
        answers in questions.csv | "captions", with captions in captions.csv.

    Raises:
      ValueError: the label type is unknown.
    """
    if label not in TASKS:
        raise ValueError(f"label '{label}' is unknown: choose one of {', '.join(TASKS)}")
    config = default_config()
    config.name = "photos"
    config.task = TASKS[label]

    config.model.patch_size = 8
    config.model.picture_size = 64
    config.model.d_model = 128
    config.model.d_ff = 256
    config.model.num_heads = 4
    config.model.num_encoder_layers = 4
    config.model.num_decoder_layers = 2
    config.model.norm_position = "pre"
    config.model.encoder_positions = "learned+grid_rotary"
    config.model.positions = "learned"
    config.model.max_length = 128
    config.model.tied_embeddings = "decoder"
    config.model.pooling = "first"

    config.data.source = "files"
    config.data.train_source = "." if label == "classes" else f"{label}.csv"
    # Hold out a tenth of the photos for validation, and a tenth for test.
    config.data.validation_size = config.data.test_size = 0
    config.data.validation_fraction = config.data.test_fraction = 0.1
    config.data.max_tokens = 40
    config.data.batch_tokens = 4096
    config.data.num_buckets = 2
    config.data.augment = "crop+flip" if label == "classes" else ""
    config.tokenizer.kind = "word"
    if label == "questions":  # users do not always capitalise questions
        config.tokenizer.normalization = "nmt_nfkc_cf"
    config.tokenizer.vocab_size = 5000

    config.optimizer.name = "muon"
    config.optimizer.schedule = "cosine"
    config.optimizer.learning_rate = 1e-3
    config.optimizer.warmup_steps = 50

    config.train.steps = 1000
    config.train.evaluate_every = 100
    config.train.best_metric = "loss"
    return config
