"""Short sentences of Tatoeba, from English into another language: spa, deu, fra and others.

    python launch.py --config=configs/tatoeba.py --mode=fetch
    python launch.py --config=configs/tatoeba.py --workdir=runs/tatoeba_spa

The language is Spanish, or that of an ISO 639-3 code after a colon (`configs/tatoeba.py:fra`); the
corpus catalogue has 54 (transformer/data/files/catalogue.toml). An English sentence often
has several translations; 1,000 pairs are held out for test and 500 for validation, with all pairs
of their English sentences.

The config is multi30k_2cores.py with half the steps, and with dropout 0.1 instead of 0.3, since
there are four times as many pairs. Two seeds for Spanish took 1.2 hours each on a core with
--config.model.matmul_dtype=bfloat16: 49.4 and 48.6 BLEU cased (docs/results/spanish.md). On a
faster machine, set more steps.
"""

from transformer.config import load_page


def get_config(language: str = "spa", text: str = ""):
    """Returns the experiment from English to a language; for `text`, see `multi30k_2cores.py`."""
    config = load_page("multi30k_2cores").get_config(text)
    config.name = "tatoeba"

    config.data.fetch = f"tatoeba_{language}"
    config.data.train_source, config.data.train_target = f"eng-{language}.tsv", ""
    config.data.validation_source = config.data.validation_target = ""
    config.data.test_source = config.data.test_target = ""
    config.data.test_size = 1000
    config.model.dropout_embedding = 0.1
    config.model.dropout_residual = 0.1
    config.train.steps = 5000
    config.evaluate.moses = ""
    return config
