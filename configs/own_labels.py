"""A text classifier for your own labelled data, read from a table or from one folder per label.

    python launch.py --config=configs/own_labels.py --workdir=runs/labels --config.data.path=FILE

FILE is a CSV, TSV, JSON lines or Parquet file, a folder with such files named train and test, or a
folder with one subfolder per label and one text per file (train/pos/1.txt).
docs/classification.md explains which columns are used; the log lists other choices.

By default, a tenth of the texts (at most 5,000) is held out for validation, and as much for test.
To use your own files, set `--config.data.test_source=...`, relative to the path. The recipe sets
the model size and the training length by the number of texts (configs/recipes/labels.py), except
for keys that you set. Training takes minutes on two cores.
"""

from transformer.config import default_config, load_page


def get_config():
    """Returns the experiment with a bag of embeddings and bigrams, and the recipe "size"."""
    config = default_config()
    bag = load_page("imdb").get_config("bigrams")
    config.name = "own_labels"
    config.recipe = "size"
    config.task = bag.task
    config.model, config.optimizer, config.train = bag.model, bag.optimizer, bag.train
    config.tokenizer = bag.tokenizer

    config.data.source = "files"
    config.data.train_source = "."
    config.data.train_target = ""
    config.data.validation_size = config.data.test_size = 5000
    config.data.max_tokens = bag.data.max_tokens
    config.data.batch_tokens = bag.data.batch_tokens
    config.data.batch_sentences = 64  # else short texts would give too few updates per epoch
    return config
