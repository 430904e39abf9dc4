"""TED talks, Russian to English (Qi et al. 2018), through TensorFlow Datasets.

    python launch.py --config=configs/ted_ru_en.py --workdir=runs/ted_ru_en

Downloads `ted_hrlr_translate` (124 MB) on first use. The model is the one that the tutorial on
this corpus trains: 4 layers of width 128, split encoding, subwords 2^13, at most 30 tokens.
No confirmed score of a Transformer on this pair is public; an LSTM reached 18.5 BLEU, with
pretrained embeddings 21.2 (Qi et al. 2018, Table 3).
"""

from configs import base


def get_config():
    config = base.get_config()
    config.name = "ted_ru_en"

    config.model.d_model = 128
    config.model.d_ff = 512
    config.model.num_heads = 8
    config.model.num_encoder_layers = 4
    config.model.num_decoder_layers = 4
    config.model.positions = "split"
    config.model.tied_embeddings = "none"
    config.model.attention_bias = True
    config.model.max_length = 128

    config.data.source = "tfds"
    config.data.tfds_name = "ted_hrlr_translate/ru_to_en"
    config.data.tfds_fields = ("ru", "en")
    config.data.max_tokens = 30
    config.tokenizer.joint = False
    config.tokenizer.vocab_size = 2**13
    config.tokenizer.byte_fallback = True

    config.train.epochs = 30.0
    config.train.evaluate_every = 0
    config.evaluate.average_last_n = 5
    return config
