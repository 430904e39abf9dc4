"""The config keys, each with its default, range, choices and facts; see `model.config.Key`.

The defaults are those of the base model of "Attention Is All You Need" (Vaswani et al. 2017;
sections in brackets), trained on the built-in grammar. Model keys are in `model/config.py`, and
optimizer keys in `optim/__init__.py`. This module imports no model, so that a misspelt key is
reported before JAX is initialised.
"""

import dataclasses
import functools
import math

from transformer.model.config import (
    BELOW_ONE,
    FACTS,
    MAX_NUMBER,
    NOT_NEGATIVE,
    POSITIVE,
    DropoutConfig,
    Key,
    ModelConfig,
    key,
)
from transformer.optim import OptimizerConfig

FRACTION = (0, 1)
NORMALIZATIONS = ("nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity")
# Copied from sacremoses, whose import takes 0.25 s; it treats any other language as English.
MOSES_LANGUAGES = (
    "as bn ca cs de el en es et fi fr ga gu hi hu is it kn lt lv ml mni mr nl or pa pl pt ro ru sk "
    "sl sv ta tdt te yue zh"
)


@dataclasses.dataclass(frozen=True)
class ExperimentConfig:
    """The top-level keys, which are in no section."""

    name: str = key("base", facts="label")  # shown in tables and titles
    task: str = key("translation", choices="transformer.tasks.REGISTRY")  # the task to learn
    seed: int = key(0, NOT_NEGATIVE, "traced")  # seed of initialisation, dropout and batch order
    # "size" sets keys by the training set size (configs/recipes/) unless the user has set them; it
    # is for configs based on own_text.py or own_labels.py. "none" sets no keys.
    recipe: str = key("none")


@dataclasses.dataclass(frozen=True)
class ClassifierConfig:
    """The keys of `config.model` that only classifiers use."""

    # mean | first | attention (Yang et al. 2016): how a classifier pools the encoder's outputs
    pooling: str = key("mean", choices="transformer.model.classifier.POOLINGS")
    bag_of_embeddings_width: int = key(16, (2, MAX_NUMBER))  # embedding dimension
    bag_of_embeddings_hidden: int = key(16, POSITIVE)  # hidden layer size
    bigram_buckets: int = key(0, NOT_NEGATIVE, "recipe")  # hash buckets of bigrams; 0: no bigrams


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """The text and image data, and how batches are made of them."""

    # grammar | copy | reverse | files | tfds: for pairs; toy_reviews | addition | files | tfds: for
    # labelled texts; quotations | repeated, or any source of pairs (only the source side is used):
    # for language models; scenes | digits | idx | easy_vqa | files | tfds: for images.
    source: str = key("grammar")
    seed: int = key(0, NOT_NEGATIVE)  # of generated corpora and random holdout
    # Number of items of a generated corpus. With files, a validation or test set of this size is
    # held out of the training data, unless it has its own file.
    train_size: int = key(20_000, NOT_NEGATIVE)
    validation_size: int = key(500, NOT_NEGATIVE, "recipe")
    test_size: int = key(500, NOT_NEGATIVE, "recipe")
    # Number of pairs in the length generalisation split; see sources.open_source.
    length_generalization_size: int = key(0, NOT_NEGATIVE, "shared")
    # files: paths relative to `path`, plain or compressed. If there is no target file, the source
    # file has both sides: .tsv, .csv, .jsonl, .tmx, .parquet, or a folder (docs/text_files.md).
    # --mode=fetch downloads the corpus `fetch` to `path` or, if `path` is empty, to `cache_dir`.
    path: str = key("", facts="place path")
    fetch: str = key("", facts="place", choices="transformer.data.files.locate.CATALOGUE")
    train_source: str = key("train.en", facts="path")
    train_target: str = key("train.de", facts="path")
    validation_source: str = key("", facts="path")
    validation_target: str = key("", facts="path")
    test_source: str = key("", facts="path")
    test_target: str = key("", facts="path")
    train_links: str = key("", facts="path")  # files: word links of the pairs, in Pharaoh format
    # If both sides are in one file: column names, object keys (translation.en is a nested key), TMX
    # languages, or 0-based column numbers of a table.
    source_field: str = key("0", facts="field")
    target_field: str = key("1", facts="field")
    # hash: chosen by a hash of the text, not by position | end: the last lines; test comes last
    holdout: str = key("hash", choices="transformer.data.held_out.STRATEGIES")
    separator: str = key("")  # column separator of a table; '': detected from its content
    quote: str = key("")  # quote character of a table; '': double quotes, or detected for TSV
    # Fields of labelled texts; there may be several texts: title,text. Documents are in text_field.
    text_field: str = key("text", facts="field shared recipe")
    label_field: str = key("label", facts="field shared recipe")
    skip_broken: bool = key(False, facts="field")  # skip and count malformed rows of a file
    # tfds: dataset name; fields (source, target), (text, label) or (text,); folder ('': default)
    tfds_name: str = key("")
    tfds_fields: tuple = key(("de", "en"))
    tfds_dir: str = key("", facts="place path written")
    tfds_train: str = key("train")
    tfds_validation: str = key("validation")
    tfds_test: str = key("test")
    # Several corpora for translation, each a dict of the `data` keys that it changes, and of name
    # (in tables and files), weight (1.0), source_tag (tags prepended to each source, such as
    # "<2de>") and reverse (True swaps source and target). Set it in a config file, or as JSON.
    corpora: tuple = key((), facts="shared json")
    # A corpus's pairs per epoch ~ weight * pairs ** (1 / temperature) (Arivazhagan et al. 2019).
    temperature: float = key(1.0, (0.1, MAX_NUMBER), "shared")
    # Images: the image column of a table with questions in text_field; whether image files show
    # handwriting, to be read as in MNIST; whether to blank all images, as a question-only baseline.
    picture_field: str = key("picture")
    ink: bool = key(False)
    blind: bool = key(False, signs="visual_question_answering")
    # Augmentations of training images: crop, flip, rotate and colour, joined by + as in crop+flip.
    augment: str = key("")
    # line | paragraph (separated by blank lines) | file: what a language model's document is
    documents: str = key("line", None, "shared", ("line", "paragraph", "file"), "language_model")
    # Language models: tokens per sequence, which contains several documents or a part of one.
    context: int = key(256, (2, MAX_NUMBER), "shared", signs="language_model")
    # Held-out fraction at the end of the text, for splits without a file; for images, if size is 0.
    validation_fraction: float = key(0.1, BELOW_ONE, "shared")
    test_fraction: float = key(0.0, BELOW_ONE, "shared")
    # Number of valid training pairs of files to use, chosen by a hash of the source, so that a
    # smaller subset is contained in a larger one; 0: all.
    train_subset: int = key(0, NOT_NEGATIVE)
    max_characters: int = key(2000, POSITIVE)  # maximum characters per side of a training pair
    max_length_ratio: float = key(3.0, (1, math.inf))  # longer to shorter side; see CleaningRules
    remove_duplicates: bool = key(True)
    remove_near_duplicates: bool = key(False)  # ignores case, digits, punctuation and blanks
    # expected languages of source and target, such as en,de; '' accepts any language
    languages: tuple = key(("", ""), facts="parts")
    # Minimum probability of a side's expected language, relative to the most probable language.
    min_language_ratio: float = key(0.05, FRACTION)
    # drop scripts that are in less than this fraction of a side's sentences; 0 keeps all
    min_script_fraction: float = key(0.0, FRACTION)
    remove_copies: bool = key(False)  # drop pairs whose target repeats most of the source
    remove_mojibake: bool = key(False)  # drop pairs in a wrong encoding, such as "Ã¼" for "ü"
    match_numbers: bool = key(False)  # drop pairs with different numbers; see rules.numbers_differ
    # maximum ratio of the longer to the shorter side, after adding 10 tokens to both; 0 keeps all
    max_token_ratio: float = key(0.0, NOT_NEGATIVE, "tokens")
    # Maximum tokens per side, including end-of-sentence; longer training pairs are dropped. A text
    # to classify is truncated to this length, including begin-of-sentence.
    max_tokens: int = key(128, (2, MAX_NUMBER), "tokens", signs="classification")
    # maximum out-of-vocabulary rate of the training tokens; above it, training does not start
    max_oov_rate: float = key(0.01, FRACTION, "shared")
    batch_tokens: int = key(4096, POSITIVE, "shared recipe")  # tokens per side, including padding
    # maximum sequences per batch; 0: limited only by batch_tokens
    batch_sentences: int = key(0, NOT_NEGATIVE, "shared")
    num_buckets: int = key(8, POSITIVE, "shared")  # number of padded lengths; each is compiled once
    # Batch sizes, except for language models, are multiples of this (or of batch_sentences, if it
    # is smaller), even if a batch then exceeds batch_tokens. Padding sequences make each batch
    # divisible among the devices.
    batch_multiple: int = key(8, POSITIVE, "shared")
    # batches prepared in advance; the step is also compiled in advance for their shapes
    prefetch: int = key(8, NOT_NEGATIVE, "place shared")
    # folder of cached tokenizers and token arrays, keyed by content; '' is ~/.cache/transformer
    cache_dir: str = key("", facts="place path written shared")
    # fraction of pairs whose source gets typing errors, or loses its accents
    augment_typos: float = key(0.0, FRACTION, "shared")
    # fraction of pairs that lose the final punctuation of both sides
    augment_punctuation: float = key(0.0, FRACTION, "shared")
    augment_joined: float = key(0.0, FRACTION, "shared")  # fraction joined with the next 1-2 pairs
    # fraction of pairs that get a new name, number or placeholder, the same on both sides
    augment_copied: float = key(0.0, FRACTION, "shared")
    # fraction with linked words written into the source, for --glossary (Dinu et al. 2019), as 0.3
    augment_glossary: float = key(0.0, FRACTION, "shared")


@dataclasses.dataclass(frozen=True)
class TokenizerConfig:
    """The source and target tokenizers."""

    # keep: with train.init_from, use that run's tokenizers (other tokenizer keys are ignored) |
    # grow: extend them by subwords of this corpus up to vocab_size | new: train new tokenizers.
    initial: str = key("keep", choices=("keep", "grow", "new"))
    # bpe (Sennrich et al. 2016) | unigram (Kudo 2018) | word | char
    kind: str = key("bpe", choices=("bpe", "unigram", "word", "char"))
    # one vocabulary for both languages; needed to tie all embeddings
    joint: bool = key(True, facts="structure")
    vocab_size: int = key(37_000, (5, MAX_NUMBER), "recipe")  # [5.1]; per side if not joint
    # fraction of the corpus's characters that the vocabulary covers
    character_coverage: float = key(1.0, (0.98, 1))
    # bpe, unigram: encode all other characters as UTF-8 bytes, instead of as unknown tokens.
    byte_fallback: bool = key(False)
    # nmt_nfkc | nmt_nfkc_cf (with case folding) | nfkc | nfkc_cf | identity: the sentencepiece rule
    # that normalises sources and texts to classify. Targets and texts for language models are only
    # normalised to NFC.
    normalization: str = key("nmt_nfkc", choices=NORMALIZATIONS)
    # maximum sentences in the sample on which the tokenizer is trained
    max_sentences: int = key(2_000_000, POSITIVE)
    split_digits: bool = key(False)  # each digit is a separate subword
    # Strings that are always one subword and are restored unchanged, such as "{name}" or "<URL>".
    symbols: tuple = key((), facts="symbols")
    # replace addresses, numbers and names by numbered tokens, and restore them in the output
    placeholders: bool = key(False, facts="structure")
    # Above 0, each training batch samples its segmentations; held-out text has the best ones. bpe:
    # probability of dropping a merge, 0.1 in Provilkov et al. 2020.
    bpe_dropout: float = key(0.0, FRACTION, "draws draws_bpe")
    # unigram: exponent of a segmentation's probability (Kudo 2018); near 0, sampling is uniform.
    sampling_alpha: float = key(0.0, (0, 100), "draws draws_unigram")
    # both | source | target: the sides to sample
    sampling_sides: str = key("both", facts="draws", choices=("both", "source", "target"))
    # Existing sentencepiece model files; target_model is used if not joint. '': train a new model.
    model: str = key("", facts="path draws")
    target_model: str = key("", facts="path draws")
    # Keep spaces and line ends unchanged, as tokens; for language models of running text.
    keep_spaces: bool = key(False)


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """The training length, the initial weights and the checkpoints."""

    # number of batches [5.2]; training ends at the first limit that steps, epochs or minutes reach
    steps: int = key(100_000, POSITIVE, "length recipe")
    # passes over the training set; 0: no limit
    epochs: float = key(0.0, NOT_NEGATIVE, "length recipe")
    # Total over restarts. Includes compilation and evaluations, but not final scores and figures.
    minutes: float = key(0.0, NOT_NEGATIVE, "length")  # 0: no limit
    label_smoothing: float = key(0.1, BELOW_ONE, "traced recipe")  # [5.4]
    # Weight of the divergence between two passes with different dropout (5 for translation in
    # Liang et al. 2021), which doubles the time and memory of a step; 0: only one pass.
    r_drop: float = key(0.0, NOT_NEGATIVE, "traced_above_zero work")
    # weight of the loss that trains cross-attention with word links (Chen et al. 2016), as 0.2; the
    # trained decoder layer (0: the last) and head (0: their mean), from 1
    guided_alignment: float = key(0.0, NOT_NEGATIVE, "traced_above_zero work")
    guided_layer: int = key(0, NOT_NEGATIVE, "work")
    guided_head: int = key(0, NOT_NEGATIVE, "work")
    # none | balanced: all classes have the same total weight in the loss; only for classification.
    class_weights: str = key("none", choices=("none", "balanced"))
    # Image classification: alpha of mixup (Zhang et al. 2018), such as 0.2; 0: no mixup.
    mixup: float = key(0.0, NOT_NEGATIVE)
    # decay per update of the exponential moving average of weights for evaluation; 0: no average
    ema_decay: float = key(0.0, BELOW_ONE, "traced_above_zero work")
    log_every: int = key(100, POSITIVE, "length")  # steps
    # steps between evaluations, before which checkpoints are saved; 0: once per epoch
    evaluate_every: int = key(1000, NOT_NEGATIVE, "length recipe")
    # maximum minutes between checkpoints; 0: only before evaluations
    save_minutes: float = key(10.0, NOT_NEGATIVE, "length")
    keep_last: int = key(5, POSITIVE, "length")  # checkpoints; at least evaluate.average_last_n
    # A validation metric of the task (transformer/metrics/registry.py); the loss breaks ties.
    best_metric: str = key("bleu")
    # evaluations without an improvement of best_metric before training stops; 0: never stops early
    patience: int = key(0, NOT_NEGATIVE, "length recipe")
    # Devices per mesh axis, such as data=4,tensor=2: data shards the batch, fsdp also the training
    # state (ZeRO), and tensor the heads, inner features and vocabulary; auto: all devices for data.
    mesh: str = key("auto", facts="devices")
    # Maximum seconds that several processes have to join or to finish a step; then all of them end.
    deadline: float = key(300.0, POSITIVE, "devices")
    # maximum consecutive non-finite steps before training ends; counted at log_every
    max_nonfinite_steps: int = key(50, POSITIVE, "length")
    # Folder of a finished or stopped run of the same task and architecture, from which to load the
    # initial weights. Training begins at step 0 with a new optimizer state; '': random weights.
    init_from: str = key("", facts="path")
    # Text files of GloVe or word2vec vectors of width d_model, which initialise the embeddings of
    # tokens that are words in them, scaled to the RMS of the random table (one for both sides if
    # model.tied_embeddings=all). Classifiers use source, language models target; '': no vectors.
    source_vectors: str = key("", facts="path")
    target_vectors: str = key("", facts="path")
    # Regular expressions that are searched in parameter names, such as
    # encoder_layers_0/self_attention/query/kernel. init_pattern selects the parameters to load from
    # init_from (others are random); freeze selects the parameters not to train ('': none).
    init_pattern: str = key(".*")
    freeze: str = key("", facts="work")
    # (pattern, factor) pairs: the first pair whose pattern matches a parameter scales its learning
    # rate (Howard and Ruder 2018, 3.2); on the command line pattern=factor,pattern=factor.
    learning_rate_factors: tuple = key((), facts="factors")


@dataclasses.dataclass(frozen=True)
class DecodeConfig:
    """Beam search and sampling, for translations and from language models."""

    beam_size: int = key(4, (1, 10_000), "search")  # [6.1]; 1 is greedy
    # gnmt [6.1] (Wu et al. 2016, eq. 14) | average | none
    length_penalty: str = key(
        "gnmt", facts="search", choices="transformer.decoding.search.PENALTIES"
    )
    alpha: float = key(0.6, (-10, 10), "search")  # exponent of the length penalty [6.1]
    # maximum output length in tokens: max_ratio * source length + max_extra
    max_ratio: float = key(1.0, NOT_NEGATIVE, "search")
    max_extra: int = key(50, NOT_NEGATIVE, "search")  # [6.1]
    batch_size: int = key(64, (1, 65_536))  # sentences per batch, split among CPU cores
    # number of translations or classes to print for each sentence, best first
    num_best: int = key(1, (1, 10_000))
    # Convert lines in capitals or title case to sentence case, and restore it in the translation.
    transfer_case: bool = key(False)
    # How --mode=translate splits a line (scoring never splits); auto: into single sentences or, if
    # a tenth of the training sources have several, into groups no longer than 99% of the sources |
    # always: into single sentences | never: lines are truncated to model.max_length.
    split_sentences: str = key("auto", choices=("auto", "always", "never"))
    # Language of the sentence splitting rules, such as de; '': from data.languages, else from the
    # suffix of the training file, else language-independent rules.
    source_language: str = key("")
    # beam | sample | mbr (Eikema and Aziz 2020) | auto: beam for translators, else sample
    search: str = key("auto", facts="search rare", choices=("auto", "beam", "sample", "mbr"))
    mbr_samples: int = key(64, (2, 10_000), "search rare")  # samples for mbr
    # groups of a translator's beam, whose tokens differ (Vijayakumar et al. 2018)
    beam_groups: int = key(1, (1, 10_000), "search rare")
    diversity: float = key(0.5, (0, 1000), "search rare")
    seed: int = key(0, NOT_NEGATIVE, "search rare")  # random seed of sampling
    temperature: float = key(1.0, (0, 100), "search rare")  # divides the logits; 0: greedy decoding
    # sample only tokens with at least this probability (Hewitt et al. 2022); 0: all tokens
    epsilon: float = key(0.0, BELOW_ONE, "search rare")
    # sample from the k most probable tokens (Fan et al. 2018); 0: from all tokens
    top_k: int = key(0, NOT_NEGATIVE, "search rare")
    # sample from the smallest token set with at least this probability (Holtzman et al. 2020)
    top_p: float = key(1.0, (1e-6, 1), "search rare")
    max_new_tokens: int = key(200, POSITIVE)  # maximum tokens after a prompt of a language model


@dataclasses.dataclass(frozen=True)
class EvaluateConfig:
    """The choice of the final weights, and how they are evaluated."""

    # The weights to use after training; best | last: one checkpoint | average: the mean of the last
    # average_last_n checkpoints [6.1] | auto: whichever has the best validation score of the best
    # checkpoint, that mean, and the mean of the average_last_n checkpoints up to the best.
    checkpoint: str = key("auto", choices=("auto", "best", "last", "average"))
    average_last_n: int = key(1, POSITIVE, "recipe")  # number of checkpoints to average
    # beam size of evaluations during training; final scores use decode.beam_size
    training_beam_size: int = key(1, (1, 10_000))
    # Maximum sentences to decode in an evaluation during training, with outputs of at most 1.5
    # times the reference's tokens plus 5. Final scores use all sentences.
    max_sentences: int = key(500, POSITIVE)
    # Maximum test pairs in each of the six perturbed copies that are scored at the end: capitals,
    # title case, no final punctuation, typing errors, joined pairs, unseen names; 0: no copies.
    perturbed_sentences: int = key(0, NOT_NEGATIVE)
    # Each evaluation saves an attention snapshot in attention_snapshots/, except in sweeps. Number
    # of validation texts for its statistics (0: no snapshots), and number with stored weights.
    snapshot_statistics: int = key(64, NOT_NEGATIVE)
    snapshot_sentences: int = key(3, NOT_NEGATIVE)
    # also the loss of the logit lens after each decoder layer of a Transformer
    snapshot_lens: bool = key(False)
    # auto | 13a | intl | char | zh | ja-mecab | ko-mecab | none: for BLEU, and for TER in scripts
    # without spaces between words; auto: chosen by the references' script (docs/own_text.md).
    sacrebleu_tokenizer: str = key("auto", signs="translation captioning")
    # language for additional scores on lowercased, Moses-tokenised text, as for Multi30k; '': none
    moses: str = key("", choices=tuple(MOSES_LANGUAGES.split()))
    bootstrap: int = key(1000, NOT_NEGATIVE)  # bootstrap samples for confidence intervals


@dataclasses.dataclass(frozen=True)
class SweepConfig:
    """The trials of a sweep, and how they are trained."""

    # grid: all trials that sweep() yields | random | tpe: samples from space()
    search: str = key("grid", facts="trials", choices=("grid", "random", "tpe"))
    trials: int = key(20, POSITIVE, "sweep")  # number of trials for random or tpe
    seed: int = key(0, NOT_NEGATIVE, "trials")  # random seed of these samples
    # 0-based index of the trial with which the other trials are compared
    baseline: int = key(0, NOT_NEGATIVE, "sweep")
    # database URL of the study; '' is an SQLite file in the workdir
    storage: str = key("", facts="sweep path written")
    # sequential: runs that share a compiled step are trained one after another | vmap: together, in
    # one program | auto: vmap on accelerators, sequential on a CPU.
    parallel: str = key("auto", facts="sweep", choices=("auto", "sequential", "vmap"))
    max_vmapped_runs: int = key(64, POSITIVE, "sweep")  # maximum runs per vmapped program
    # also retry trials that failed before the sweep was resumed
    retry_failed: bool = key(False, facts="sweep")
    # stop a run if it is below the median of earlier runs at the same step (sequential only)
    prune: bool = key(False, facts="sweep")


# For each config section, the classes with its keys, and the facts that all its keys have.
SECTIONS: dict[str, tuple[tuple[type, ...], set[str]]] = {
    "": ((ExperimentConfig,), set()),
    "model": ((ModelConfig, DropoutConfig, ClassifierConfig), set()),
    "data": ((DataConfig,), set()),
    "tokenizer": ((TokenizerConfig,), set()),
    "optimizer": ((OptimizerConfig,), set()),
    "train": ((TrainConfig,), set()),
    "decode": ((DecodeConfig,), {"scores"}),
    "evaluate": ((EvaluateConfig,), {"scores"}),
    "sweep": ((SweepConfig,), set()),
}
KEYS: dict[str, Key] = {  # keyed by dotted name
    f"{section}.{field.name}".lstrip("."): about._replace(facts=about.facts | facts)
    for section, (classes, facts) in SECTIONS.items()
    for each in classes
    for field in dataclasses.fields(each)
    for about in field.metadata.values()
}
# A resumed run may change the keys with one of these facts.
FREE = ("label", "place", "length", "scores", "devices", "sweep", "trials")


@functools.cache
def having(*facts: str) -> tuple[str, ...]:
    """Returns the dotted keys that have at least one of these facts; see `FACTS`."""
    assert FACTS.keys() >= {*facts}, facts
    return tuple(key for key, about in KEYS.items() if about.facts.intersection(facts))


def signing(task: str) -> list[str]:
    """Returns the dotted keys that are part of all score signatures of a task."""
    return [key for key, about in KEYS.items() if task in about.signs]
