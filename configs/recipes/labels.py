"""The recipe "size" for classification: settings for each number of training texts.

`experiments/process/recipe.py` selects the row whose number of texts is closest on a log scale.
Keys that are not listed have their values in `configs/own_labels.py`. docs/classification.md has
the measurements.
"""

# The config keys that the values of a row set.
KEYS = (
    ("model.bigram_buckets",),
    ("tokenizer.vocab_size",),
    ("data.batch_tokens",),
    ("train.epochs",),
    ("train.steps",),
    ("train.patience",),
)
# Sizes that are each limited to a tenth of a small corpus, so that at most a fifth is held out.
HELD_OUT = ("data.validation_size", "data.test_size")
# Config keys of data columns; the columns are inferred from their names and content.
COLUMNS = ("data.text_field", "data.label_field")
UNIT = "texts"
LIMIT = 1_000_000  # steps; never reached, since training ends after the number of epochs
REASON = "the mean of embeddings of subwords and bigrams, as in fastText (Joulin et al. 2017)"

# {training texts: (the reason in one line, a value for each of KEYS)}
ROWS = {
    300: (REASON, (10_000, 1000, 1024, 60, LIMIT, 10)),
    1_000: (REASON, (20_000, 2000, 1024, 40, LIMIT, 6)),
    5_000: (REASON, (100_000, 8000, 4096, 15, LIMIT, 3)),
    20_000: (REASON, (200_000, 16_000, 8192, 6, LIMIT, 2)),
    100_000: (REASON, (500_000, 32_000, 8192, 5, LIMIT, 2)),
    1_000_000: (REASON, (1_000_000, 32_000, 16_384, 3, LIMIT, 2)),
}
