"""Multi30k on one or two cores: `multi30k.py`, changed to learn faster.

    python launch.py --config=configs/multi30k_2cores.py --mode=fetch
    python launch.py --config=configs/multi30k_2cores.py --workdir=runs/multi30k

With --config.model.matmul_dtype=bfloat16, a step took 0.61 seconds on one core of a Xeon. On
test_2016_flickr, two seeds reached 40.9 and 41.1 cased BLEU (sacreBLEU 13a), or 41.4 and 41.6
tokenised and lowercased. With `:clean`, the scores were 40.5 and 40.7 cased, and 40.9 and 41.1
tokenised and lowercased (docs/results/multi30k.md).

The changes are rotary positions, Muon instead of Adam, pre-norm, a cosine decay to zero over all
steps, half the batch size, and 6,000 subwords instead of 10,000, for which the output layer took
half of the computation. If you have less time, reduce the steps: `--config.train.steps=4000`.
"""

from transformer.config import load_page


def get_config(text: str = ""):
    """Returns the experiment. If `text` is "clean", `read_any_text` is not applied.

    Raises:
      ValueError: the text is unknown.
    """
    if text not in ("", "clean"):
        raise ValueError(f"text '{text}' is unknown: choose clean, or leave it out with its colon")
    config = load_page("multi30k").get_config()
    config.name = "multi30k_2cores"

    config.model.norm_position = "pre"
    config.model.positions = "rotary"
    config.data.batch_tokens = 4096
    config.data.num_buckets = 10
    config.tokenizer.vocab_size = 6000

    config.optimizer.name = "muon"
    config.optimizer.schedule = "cosine"
    config.optimizer.learning_rate = 0.004
    config.optimizer.warmup_steps = 1000
    config.train.steps = 10_000
    config.train.evaluate_every = 500
    config.train.patience = 0
    config.evaluate.average_last_n = 5
    config.decode.transfer_case = True
    config.evaluate.perturbed_sentences = 500
    return config if text else read_any_text(config)


def read_any_text(config):
    """Sets keys so that a model copies names and numbers, and is robust to careless text.

    This does not change BLEU on clean text (docs/results/robustness.md).
    """
    config.tokenizer.placeholders = True
    config.tokenizer.split_digits = True
    config.tokenizer.byte_fallback = True
    config.data.augment_typos = 0.03
    config.data.augment_punctuation = 0.01
    config.data.augment_joined = 0.03
    config.data.augment_copied = 0.03
    return config
