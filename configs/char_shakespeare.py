"""A character-level language model for any text file, with two sizes compared on Shakespeare.

    python launch.py --config=configs/char_shakespeare.py --mode=fetch
    python launch.py --config=configs/char_shakespeare.py --workdir=runs/shakespeare
    python launch.py --config=configs/char_shakespeare.py:gpu --workdir=runs/shakespeare_gpu

The first command downloads Shakespeare (1.1 MB); for your own text set `--config.data.path` and
`--config.data.train_source`.

The first 90% of the file are the training set, and the last 10% are the validation set. The model,
batch size and number of steps are those of nanoGPT: 4 layers of width 128 and a context of 64
characters on a CPU, and 6 layers of width 384 and a context of 256 characters on a GPU.
"""

from transformer.config import default_config

# layers, heads, width, context, batch size, steps, warm-up, dropout
SIZES = {"cpu": (4, 4, 128, 64, 12, 2000, 100, 0.0), "gpu": (6, 6, 384, 256, 64, 5000, 100, 0.2)}


def get_config(size: str = "cpu"):
    """Returns the experiment with the model size for a "cpu" or a "gpu".

    Raises:
      ValueError: the size is unknown.
    """
    if size not in SIZES:
        raise ValueError(f"size '{size}' is unknown: choose one of {', '.join(SIZES)}")
    layers, heads, width, context, rows, steps, warmup, dropout = SIZES[size]
    config = default_config()
    config.name = "char_shakespeare"
    config.task = "language_model"

    config.model.d_model = width
    config.model.d_ff = 4 * width
    config.model.num_heads = heads
    config.model.num_decoder_layers = layers
    config.model.norm_position = "pre"
    config.model.activation = "gelu"
    config.model.dropout_embedding = config.model.dropout_residual = dropout
    config.model.dropout_attention = dropout

    config.data.source = "files"
    config.data.fetch = "shakespeare"
    config.data.train_source = "input.txt"
    config.data.documents = "file"
    config.data.context = context
    config.data.batch_tokens = rows * context
    config.data.max_tokens = context
    config.tokenizer.kind = "char"
    config.tokenizer.vocab_size = 1000
    config.tokenizer.keep_spaces = True

    config.optimizer.name = "adamw"
    config.optimizer.beta2 = 0.99
    config.optimizer.weight_decay = 0.1
    config.optimizer.clip_norm = 1.0
    config.optimizer.schedule = "cosine"
    config.optimizer.learning_rate = 1e-3
    config.optimizer.warmup_steps = warmup

    config.train.steps = steps
    config.train.label_smoothing = 0.0
    config.train.evaluate_every = 250
    config.train.best_metric = "nll"
    return config
