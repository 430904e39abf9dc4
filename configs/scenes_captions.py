"""An image captioning Transformer for generated scenes: patches are encoded, words are decoded.

    python launch.py --config=configs/scenes_captions.py --workdir=runs/scenes_captions

docs/results/pictures.md reports its scores.
"""

from transformer.config import load_page


def get_config():
    config = load_page("scenes_vqa").get_config()
    config.name = "scenes_captions"
    config.task = "captioning"

    config.model.num_encoder_layers = 3
    config.model.num_decoder_layers = 2
    config.model.encoder_positions = config.model.positions
    config.model.positions = "learned"  # of the decoder
    config.model.tied_embeddings = "decoder"

    config.data.train_size = 40_000
    config.data.max_tokens = 40

    config.train.steps = 3000
    config.train.best_metric = "exact_match"
    config.evaluate.sacrebleu_tokenizer = "none"  # captions are separated into words by spaces
    return config
