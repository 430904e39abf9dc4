"""A translation model from a classic tutorial, trained on a file of English-German pairs.

    python launch.py --config=configs/tutorial_en_de.py --mode=fetch
    python launch.py --config=configs/tutorial_en_de.py --workdir=runs/tutorial

The first command downloads Tatoeba's current pairs. To use your own file, with one
`English<TAB>German` pair per line, plain or gzip, set `--config.data.path` and
`--config.data.train_source`. 2,000 random pairs are held out, half for validation and half for
test. On only the 50,001 shortest pairs, 30 epochs took 65 minutes on one core, and the model
reached 46.9 BLEU (one seed; docs/results/tutorial.md). The downloaded file has more pairs.
"""

from transformer.config import default_config


def get_config():
    config = default_config()
    config.name = "tutorial_en_de"

    config.model.d_model = 128
    config.model.d_ff = 512
    config.model.num_heads = 8
    config.model.num_encoder_layers = 4
    config.model.num_decoder_layers = 4
    config.model.tied_embeddings = "none"
    config.model.attention_bias = True
    config.model.max_length = 128

    config.data.source = "files"
    config.data.fetch = "tatoeba_deu"
    config.data.train_source, config.data.train_target = "eng-deu.tsv", ""
    config.data.validation_size = 1000
    config.data.test_size = 1000
    config.data.max_tokens = 40
    config.data.batch_sentences = 64
    config.tokenizer.joint = False
    config.tokenizer.vocab_size = 10_002
    config.tokenizer.byte_fallback = True

    config.train.epochs = 30.0
    config.train.label_smoothing = 0.0
    config.train.evaluate_every = 0
    config.decode.max_extra = 10
    config.evaluate.average_last_n = 5
    return config
