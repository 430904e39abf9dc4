"""IWSLT14 German to English, with fairseq's model `transformer_iwslt_de_en` and training recipe.

    python launch.py --config=configs/iwslt14_de_en.py --mode=fetch
    python launch.py --config=configs/iwslt14_de_en.py --workdir=runs/iwslt14

The first command downloads TED talks (20 MB) without tags and in lower case, the usual form for
scoring. Training for 50 epochs, about 55,000 steps, needs a GPU. Compare the BLEU of lowercased,
Moses-tokenised text on 6,750 pairs, which should be 35.0 to 35.6. Liu et al. 2020 ("Understanding
the Difficulty of Training Transformers") report 35.64 ± 0.23 for post-norm and 35.50 ± 0.04 for
pre-norm, with 90 epochs of RAdam, a peak rate of 0.0007 after 6,000 updates, dropout of 0.1 also on
attention weights and inside the feed-forward layers, and one table for all embeddings.

fairseq tokenises the text before it learns a vocabulary for each language. Here, the text is
tokenised only for scoring, and both languages share 10,000 subwords. As in fairseq, only the target
embeddings are tied to the output projection. Cleaning counts characters (`max_length_ratio`) and
subwords (`max_tokens`) instead of Moses tokens, and is done after every 23rd pair is held out for
validation; training pairs that are also in validation or test are dropped. Scoring also normalises
punctuation. The model lowercases its sources, so that it can also translate cased text.

Source: examples/translation/README.md and prepare-iwslt14.sh in fairseq, whose Adam uses decoupled
weight decay.
"""

from transformer.config import default_config


def get_config():
    config = default_config()
    config.name = "iwslt14_de_en"

    config.model.d_ff = 1024
    config.model.num_heads = 4
    config.model.positions = "split"
    config.model.tied_embeddings = "decoder"
    config.model.attention_bias = True
    config.model.dropout_embedding = 0.3
    config.model.dropout_residual = 0.3

    config.data.source = "files"
    config.data.fetch = "iwslt14_de_en"
    config.data.train_source, config.data.train_target = "train.de", "train.en"
    config.data.validation_source, config.data.validation_target = "valid.de", "valid.en"
    config.data.test_source, config.data.test_target = "test.de", "test.en"
    config.data.max_length_ratio = 1.5
    config.data.max_tokens = 175
    config.data.remove_duplicates = False
    config.tokenizer.vocab_size = 10_000
    config.tokenizer.byte_fallback = True
    config.tokenizer.normalization = "nmt_nfkc_cf"

    config.optimizer.name = "adamw"
    config.optimizer.weight_decay = 1e-4
    config.optimizer.epsilon = 1e-8
    config.optimizer.schedule = "inverse_sqrt"
    config.optimizer.learning_rate = 5e-4

    config.train.epochs = 50.0
    config.train.evaluate_every = 0

    config.decode.beam_size = 5
    config.decode.length_penalty = "average"
    config.decode.alpha = 1.0
    config.evaluate.average_last_n = 10
    config.evaluate.moses = "en"
    return config
