"""Russian to English translation of TED talks (Qi et al. 2018).

    python launch.py --config=configs/ted_ru_en.py --workdir=runs/ted_ru_en

`ted_hrlr_translate` (124 MB) is downloaded on first use. Without TensorFlow Datasets:

    python launch.py --config=configs/ted_ru_en.py:files --mode=fetch
    python launch.py --config=configs/ted_ru_en.py:files --workdir=runs/ted_ru_en_files

The model is that of a tutorial on this corpus: 4 layers of width 128, split positional encoding,
2^13 subwords per side, and at most 30 tokens. Unlike the tutorial, it uses pre-norm, and Muon for
the kernels: with post-norm and Adam, the cross-attention was still uniform after 51 minutes on
other Russian text (docs/results/russian.md). We have not yet trained it on TED.
There is no confirmed public score of a Transformer on this pair. An LSTM reaches 18.5 BLEU, or 21.2
with pretrained embeddings (Qi et al. 2018, Table 3).
"""

from transformer.config import default_config


def get_config(source: str = "tfds"):
    """Returns the experiment with the corpus from "tfds", or from downloaded "files".

    Raises:
      ValueError: the source is unknown.
    """
    if source not in ("tfds", "files"):
        raise ValueError(f"source '{source}' is unknown: choose tfds or files")
    config = default_config()
    config.name = "ted_ru_en"

    config.model.d_model = 128
    config.model.d_ff = 512
    config.model.num_heads = 8
    config.model.num_encoder_layers = 4
    config.model.num_decoder_layers = 4
    config.model.positions = "split"
    config.model.tied_embeddings = "none"
    config.model.attention_bias = True
    config.model.norm_position = "pre"
    config.model.max_length = 128

    config.data.source = source
    if source == "files":
        config.data.fetch = "ted_ru_en"
        config.data.train_source, config.data.train_target = "ru.train", "en.train"
        config.data.validation_source, config.data.validation_target = "ru.dev", "en.dev"
        config.data.test_source, config.data.test_target = "ru.test", "en.test"
    config.data.tfds_name = "ted_hrlr_translate/ru_to_en"
    config.data.tfds_fields = ("ru", "en")
    config.data.max_tokens = 30
    config.tokenizer.joint = False
    config.tokenizer.vocab_size = 2**13
    config.tokenizer.byte_fallback = True

    config.optimizer.name = "muon"
    config.optimizer.schedule = "cosine"
    config.optimizer.learning_rate = 0.004
    config.optimizer.warmup_steps = 1000
    config.train.epochs = 30.0
    config.train.evaluate_every = 0
    config.evaluate.average_last_n = 5
    return config
