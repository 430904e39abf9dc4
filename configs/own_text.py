"""A translation model for your own parallel text: line i of one file translates line i of another.

    python launch.py --config=configs/own_text.py --workdir=runs/own \\
        --config.data.path=DIR --config.data.train_source=FILE --config.data.train_target=FILE

By default, 500 pairs (at most a tenth of the text) are held out for validation, and as many for
test. To use your own files, set `--config.data.validation_source=...` and similar keys.

The recipe sets the model size, the dropout and learning rates and the training length by the number
of pairs (configs/recipes/size.py), except for keys that you set; `--config.recipe=none` uses the
values below. `--mode=plan` estimates the training time and memory. If training would take too long,
`--config=configs/own_text.py:hour` trains the small model of multi30k_2cores.py for 10,000 steps.
This takes about an hour on two cores for any number of pairs.
"""

from transformer.config import default_config, load_page

multi30k_2cores = load_page("multi30k_2cores")


def get_config(time: str = ""):
    """Returns the experiment with the recipe "size", or with fixed values if `time` is "hour".

    Raises:
      ValueError: the time is unknown.
    """
    if time not in ("", "hour"):
        raise ValueError(f"time '{time}' is unknown: choose hour, or leave it out with its colon")
    config = default_config()
    config.name = "own_text"
    config.recipe = "size"

    config.model.d_model = 256
    config.model.d_ff = 1024
    config.model.num_heads = 4
    config.model.num_encoder_layers = 3
    config.model.num_decoder_layers = 3
    config.model.norm_position = "pre"
    config.model.dropout_embedding = 0.2
    config.model.dropout_residual = 0.2

    config.data.source = "files"
    config.data.batch_tokens = 2048
    # These rules drop none of 29,000 clean pairs (docs/text_files.md).
    config.data.remove_copies = True
    config.data.remove_mojibake = True
    config.data.match_numbers = True
    config.data.min_script_fraction = 0.01
    config.tokenizer.vocab_size = 8000
    multi30k_2cores.read_any_text(config)

    config.optimizer.schedule = "inverse_sqrt"
    config.optimizer.learning_rate = 1e-3
    config.optimizer.warmup_steps = 300
    config.train.epochs = 20.0
    config.train.evaluate_every = 0
    config.evaluate.average_last_n = 5
    config.train.patience = 5
    config.decode.transfer_case = True
    config.evaluate.perturbed_sentences = 500

    if time == "hour":
        fast = multi30k_2cores.get_config()
        config.recipe = "none"
        config.model, config.optimizer, config.train = fast.model, fast.optimizer, fast.train
        config.data.batch_tokens = fast.data.batch_tokens
        config.tokenizer.vocab_size = fast.tokenizer.vocab_size
    return config
