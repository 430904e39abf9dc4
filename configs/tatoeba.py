"""Short sentences of Tatoeba, translated from English into another language.

    python launch.py --config=configs/tatoeba.py --mode=fetch
    python launch.py --config=configs/tatoeba.py --workdir=runs/tatoeba_spa

The target language is Spanish by default. To choose another language, append its ISO 639-3 code
(`configs/tatoeba.py:fra`); transformer/data/files/catalogue.toml lists 54 languages. An English
sentence often has several translations, and all of its pairs are in the same split: 1,000 pairs are
held out for test and 500 for validation.

The config is multi30k_2cores.py with half the steps, and with dropout 0.1 instead of 0.3, since
there are four times as many pairs. With --config.model.matmul_dtype=bfloat16, two seeds for Spanish
took 1.2 hours each on one core, and reached 49.4 and 48.6 cased BLEU (docs/results/spanish.md).
Train for more steps on a faster machine.
"""

from transformer.config import load_page


def get_config(language: str = "spa", text: str = ""):
    """Returns the experiment for a target language; for `text`, see `multi30k_2cores.py`."""
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
