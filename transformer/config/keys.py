"""The keys of a config, each with default, range, choices and facts, see `model.config.Key`.

The defaults are the base model of "Attention Is All You Need" (Vaswani et al. 2017; sections in
brackets) on the built-in grammar. Keys of the model are in `model/config.py`, those of the
optimizer in `optim/__init__.py`. No model is imported, so that a misspelt key is reported before
jax has started.
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
# Languages of sacremoses, which treats any other as English; importing it takes 0.25 seconds.
MOSES_LANGUAGES = (
    "as bn ca cs de el en es et fi fr ga gu hi hu is it kn lt lv ml mni mr nl or pa pl pt ro ru sk "
    "sl sv ta tdt te yue zh"
)


@dataclasses.dataclass(frozen=True)
class ExperimentConfig:
    """The keys outside all sections."""

    name: str = key("base", facts="label")  # in tables and titles
    task: str = key("translation", choices="transformer.tasks.REGISTRY")  # what is learnt
    seed: int = key(0, NOT_NEGATIVE, "traced")  # for initialisation, dropout and batch order
    # "size" sets keys by the number of training pairs (configs/recipes/size.py) unless the user
    # set them; for configs that start from own_text.py. "none" sets none.
    recipe: str = key("none")


@dataclasses.dataclass(frozen=True)
class ClassifierConfig:
    """Keys of `config.model` that only classifiers have."""

    # mean | first | attention (Yang et al. 2016): for classifiers
    pooling: str = key("mean", choices="transformer.model.classifier.POOLINGS")
    bag_of_embeddings_width: int = key(16, (2, MAX_NUMBER))  # width of the embeddings
    bag_of_embeddings_hidden: int = key(16, POSITIVE)  # units of the hidden layer
    bigram_buckets: int = key(0, NOT_NEGATIVE, "recipe")  # rows of hashed bigrams; 0: none


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Text and pictures, and how they become batches."""

    # grammar | copy | reverse | files | tfds: for pairs; toy_reviews | files | tfds: for labelled
    # texts; quotations | any of pairs (their sources): for language models; scenes | digits | idx |
    # easy_vqa | files | tfds: for pictures.
    source: str = key("grammar")
    seed: int = key(0, NOT_NEGATIVE)  # for generated corpora and random holdout
    # Number of pairs or labelled texts of generated sources. With files, a validation or test set
    # without a file of its own is held out of the training text.
    train_size: int = key(20_000, NOT_NEGATIVE)
    validation_size: int = key(500, NOT_NEGATIVE, "recipe")
    test_size: int = key(500, NOT_NEGATIVE, "recipe")
    # Number of pairs beyond the training length to score, see sources.open_source.
    length_generalization_size: int = key(0, NOT_NEGATIVE, "shared")
    # files: names below `path`, plain or compressed. Without a target file, the source has rows of
    # both sides: .tsv, .csv, .jsonl, .tmx, .parquet, or a folder (docs/text_files.md).
    # --mode=fetch downloads the corpus named by `fetch`, below `cache_dir` if `path` is empty.
    path: str = key("", facts="place path")
    fetch: str = key("", facts="place", choices="transformer.data.files.locate.CATALOGUE")
    train_source: str = key("train.en", facts="path")
    train_target: str = key("train.de", facts="path")
    validation_source: str = key("", facts="path")
    validation_target: str = key("", facts="path")
    test_source: str = key("", facts="path")
    test_target: str = key("", facts="path")
    # If both sides are in one file: column names, keys of objects (translation.en is a nested key),
    # languages of TMX; or column numbers of a table, from 0.
    source_field: str = key("0", facts="field")
    target_field: str = key("1", facts="field")
    # hash: by a hash of the text, independent of its position | end: the last lines, test last
    holdout: str = key("hash", choices="transformer.data.held_out.STRATEGIES")
    separator: str = key("")  # between the columns of a table; '': guessed from its content
    quote: str = key("")  # around its cells; '': double quotes, for TSV guessed from its content
    # The same for labelled texts, possibly several fields: title,text; for documents: text_field.
    text_field: str = key("text", facts="field shared recipe")
    label_field: str = key("label", facts="field shared recipe")
    skip_broken: bool = key(False, facts="field")  # skip and count broken rows of a file
    # tfds: dataset name, fields (source, target), (text, label) or (text,), folder ('': default)
    tfds_name: str = key("")
    tfds_fields: tuple = key(("de", "en"))
    tfds_dir: str = key("", facts="place path written")
    tfds_train: str = key("train")
    tfds_validation: str = key("validation")
    tfds_test: str = key("test")
    # Several corpora for translation: a dict for each with the keys of `data` that it changes, and
    # name (for tables and files), weight (1.0), source_tag (tags put before each source, such as
    # "<2de>") and reverse (True swaps source and target). Set in a config file, or as JSON.
    corpora: tuple = key((), facts="shared json")
    # Pairs of a corpus in an epoch ~ weight * pairs ** (1 / temperature) (Arivazhagan et al. 2019).
    temperature: float = key(1.0, (0.1, MAX_NUMBER), "shared")
    # Pictures: the column of a table whose questions are in text_field; whether picture files are
    # handwriting, read as in MNIST; whether pictures are blank, as a baseline with questions only.
    picture_field: str = key("picture")
    ink: bool = key(False)
    blind: bool = key(False, signs="visual_question_answering")
    # Random changes of training pictures, such as crop+flip, from crop, flip, rotate and colour.
    augment: str = key("")
    # line | paragraph (separated by blank lines) | file: the documents of a language model
    documents: str = key("line", None, "shared", ("line", "paragraph", "file"), "language_model")
    # Language models: tokens of a sequence, which holds several documents or a part of one.
    context: int = key(256, (2, MAX_NUMBER), "shared", signs="language_model")
    # one sequence per position, which needs no look-ahead mask; slower
    each_position: bool = key(False, facts="shared")
    # A split without a file is this fraction of the text's end; for pictures, if its size is 0.
    validation_fraction: float = key(0.1, BELOW_ONE, "shared")
    test_fraction: float = key(0.0, BELOW_ONE, "shared")
    # Training pairs of files: only this many of those that are valid by themselves, chosen by the
    # hash of the source, so that a smaller number is a subset of a larger one; 0: all.
    train_subset: int = key(0, NOT_NEGATIVE)
    max_characters: int = key(2000, POSITIVE)  # maximum per side, in cleaning the training pairs
    max_length_ratio: float = key(3.0, (1, math.inf))  # longer over shorter side, see CleaningRules
    remove_duplicates: bool = key(True)
    remove_near_duplicates: bool = key(False)  # equal except case, digits, punctuation, blanks
    # languages of a file's source and target, such as en,de; '' is any
    languages: tuple = key(("", ""), facts="parts")
    # Minimum probability of a side's language, relative to the most probable language.
    min_language_ratio: float = key(0.05, FRACTION)
    # minimum fraction of a side's sentences for a usual script; 0 keeps all
    min_script_fraction: float = key(0.0, FRACTION)
    remove_copies: bool = key(False)  # targets that repeat most of their source
    remove_mojibake: bool = key(False)  # "Ã¼" for "ü"
    match_numbers: bool = key(False)  # drops pairs whose numbers differ, see rules.numbers_differ
    # maximum ratio of the longer to the shorter side, with 10 tokens added to both; 0 keeps all
    max_token_ratio: float = key(0.0, NOT_NEGATIVE, "tokens")
    # Per side, including end-of-sentence; longer training pairs are dropped. A text to classify is
    # truncated to this length, including begin-of-sentence.
    max_tokens: int = key(128, (2, MAX_NUMBER), "tokens", signs="classification")
    # maximum fraction of unknown tokens; above it, a run refuses to start
    max_oov_rate: float = key(0.01, FRACTION, "shared")
    batch_tokens: int = key(4096, POSITIVE, "shared recipe")  # per side, including padding
    # maximum sequences per batch; 0: limited only by batch_tokens
    batch_sentences: int = key(0, NOT_NEGATIVE, "shared")
    num_buckets: int = key(8, POSITIVE, "shared")  # static lengths of batches; each compiles once
    # Batch sizes, except those of language models, are multiples of this (or of batch_sentences,
    # if that is less), even if a batch then exceeds batch_tokens. Empty rows fill up a batch that
    # the devices do not divide.
    batch_multiple: int = key(8, POSITIVE, "shared")
    # batches made in advance, for whose shapes the step is also compiled in advance
    prefetch: int = key(8, NOT_NEGATIVE, "place shared")
    # holds tokenizers and token arrays by content; '' is ~/.cache/transformer
    cache_dir: str = key("", facts="place path written shared")
    # fraction of pairs with typing errors, or without accents, in the source
    augment_typos: float = key(0.0, FRACTION, "shared")
    augment_punctuation: float = key(0.0, FRACTION, "shared")  # no final punctuation on both sides
    # two or three consecutive pairs on one line
    augment_joined: float = key(0.0, FRACTION, "shared")
    # a new name, number or placeholder, the same on both sides
    augment_copied: float = key(0.0, FRACTION, "shared")


@dataclasses.dataclass(frozen=True)
class TokenizerConfig:
    """The tokenizers of both languages."""

    # keep: with train.init_from, the tokenizers of that run (other keys here are not used) |
    # grow: the same, extended by subwords of this text up to vocab_size | new: trained here.
    initial: str = key("keep", choices=("keep", "grow", "new"))
    # bpe (Sennrich et al. 2016) | unigram (Kudo 2018) | word | char
    kind: str = key("bpe", choices=("bpe", "unigram", "word", "char"))
    # one vocabulary for both languages; needed to tie all embeddings
    joint: bool = key(True, facts="structure")
    vocab_size: int = key(37_000, (5, MAX_NUMBER), "recipe")  # [5.1]; for each side if not joint
    # fraction of the text's characters that are in the vocabulary
    character_coverage: float = key(1.0, (0.98, 1))
    # bpe, unigram: 256 byte subwords spell all other characters, which are unknown otherwise.
    byte_fallback: bool = key(False)
    # nmt_nfkc | nmt_nfkc_cf (folds case, too) | nfkc | nfkc_cf | identity: sentencepiece's rule for
    # sources and texts to classify. Targets, and texts of language models, keep their characters
    # in NFC.
    normalization: str = key("nmt_nfkc", choices=NORMALIZATIONS)
    # maximum size of the text sample that trains the tokenizer
    max_sentences: int = key(2_000_000, POSITIVE)
    split_digits: bool = key(False)  # each digit is a separate subword
    # Strings that are always one subword and are restored unchanged, such as "{name}" or "<URL>".
    symbols: tuple = key((), facts="symbols")
    # replaces addresses, numbers and names by numbered tokens, and restores them
    placeholders: bool = key(False, facts="structure")
    # Each training batch samples segmentations; 0: the best ones, as in held-out text. bpe:
    # probability of dropping a merge, 0.1 in Provilkov et al. 2020.
    bpe_dropout: float = key(0.0, FRACTION, "draws draws_bpe")
    # unigram: exponent of a segmentation's probability (Kudo 2018); near 0, about uniform.
    sampling_alpha: float = key(0.0, (0, 100), "draws draws_unigram")
    # both | source | target
    sampling_sides: str = key("both", facts="draws", choices=("both", "source", "target"))
    # Files of existing sentencepiece models, the second for the target if not joint; '' trains one.
    model: str = key("", facts="path draws")
    target_model: str = key("", facts="path draws")
    # Blanks and line ends are tokens and stay unchanged, for language models of running text.
    keep_spaces: bool = key(False)


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """The length of training, its initial weights, and its checkpoints."""

    # batches [5.2]; the run ends at the first limit of steps, epochs, minutes
    steps: int = key(100_000, POSITIVE, "length recipe")
    # passes over the training text; 0: no limit
    epochs: float = key(0.0, NOT_NEGATIVE, "length recipe")
    # Total over restarts, with compilation and evaluations, without final scores and figures.
    minutes: float = key(0.0, NOT_NEGATIVE, "length")  # 0: no limit
    label_smoothing: float = key(0.1, BELOW_ONE, "traced recipe")  # [5.4]
    # Weight of the divergence between two passes with different dropout, 5 in Liang et al. 2021 for
    # translation; 0: one pass. A step takes twice the time and memory.
    r_drop: float = key(0.0, NOT_NEGATIVE, "traced_above_zero work")
    # none | balanced: equal total weight per class in the loss; only for classification.
    class_weights: str = key("none", choices=("none", "balanced"))
    # Picture classes: alpha of mixup (Zhang et al. 2018), such as 0.2; 0 for none.
    mixup: float = key(0.0, NOT_NEGATIVE)
    # decay of the moving average of weights, per update, for evaluation; 0: none
    ema_decay: float = key(0.0, BELOW_ONE, "traced_above_zero work")
    log_every: int = key(100, POSITIVE, "length")  # steps
    # steps; 0: once per epoch. A checkpoint is saved before each evaluation
    evaluate_every: int = key(1000, NOT_NEGATIVE, "length recipe")
    # maximum minutes between checkpoints; 0: only before evaluations
    save_minutes: float = key(10.0, NOT_NEGATIVE, "length")
    keep_last: int = key(5, POSITIVE, "length")  # number to keep; at least evaluate.average_last_n
    # On validation: any metric of the task in transformer/metrics/registry.py; loss breaks ties.
    best_metric: str = key("bleu")
    # evaluations without a better best_metric before stopping; 0: never
    patience: int = key(0, NOT_NEGATIVE, "length recipe")
    # Devices along each axis, such as data=4,tensor=2: data divides the rows of a batch, fsdp also
    # the state (ZeRO), tensor heads, inner features and vocabulary; auto: all for data.
    mesh: str = key("auto", facts="devices")
    # Maximum seconds for a step of several processes and their meeting; all end if it is exceeded.
    deadline: float = key(300.0, POSITIVE, "devices")
    # maximum in a row before training ends; counted at log_every
    max_nonfinite_steps: int = key(50, POSITIVE, "length")
    # Folder of a run of the same task and architecture, finished or stopped, whose weights are the
    # initial ones, at step 0 with a fresh optimizer; '': the seed initialises the parameters.
    init_from: str = key("", facts="path")
    # Text files of word vectors, GloVe or word2vec, of the model's width: initial embeddings of
    # tokens that are words in them, scaled to the RMS of the initial table, which both sides share
    # if model.tied_embeddings=all. Classifiers have a source, language models a target; '': none.
    source_vectors: str = key("", facts="path")
    target_vectors: str = key("", facts="path")
    # Regular expressions, searched in names of parameters such as
    # encoder_layers_0/self_attention/query/kernel: init_pattern selects the parameters to load from
    # that run (the seed initialises the rest), freeze those that are not trained ('': none).
    init_pattern: str = key(".*")
    freeze: str = key("", facts="work")
    # (pattern, factor) pairs: the first that matches a parameter multiplies its learning rate
    # (Howard and Ruder 2018, 3.2); on the command line pattern=factor,pattern=factor.
    learning_rate_factors: tuple = key((), facts="factors")


@dataclasses.dataclass(frozen=True)
class DecodeConfig:
    """The search for a translation, and the sampling of a text."""

    beam_size: int = key(4, (1, 10_000), "search")  # [6.1]; 1 is greedy
    # gnmt [6.1] (Wu et al. 2016, eq. 14) | average | none
    length_penalty: str = key(
        "gnmt", facts="search", choices="transformer.decoding.search.PENALTIES"
    )
    alpha: float = key(0.6, (-10, 10), "search")  # exponent of the length penalty [6.1]
    # maximum output: max_ratio * source length + max_extra, in tokens
    max_ratio: float = key(1.0, NOT_NEGATIVE, "search")
    max_extra: int = key(50, NOT_NEGATIVE, "search")  # [6.1]
    batch_size: int = key(64, (1, 65_536))  # sentences at once, divided among the cores of a CPU
    # number of translations, or classes, printed for each sentence, best first
    num_best: int = key(1, (1, 10_000))
    # Lines in capitals or title case are read in sentence case; the translation gets their case.
    transfer_case: bool = key(False)
    # --mode=translate splits lines of several sentences; scoring never does; auto: into single
    # sentences or, if a tenth of the training sources has several, into groups as long as 99% of
    # the sources | always: into single sentences | never: lines are cut to model.max_length.
    split_sentences: str = key("auto", choices=("auto", "always", "never"))
    # Language whose rules split sentences, such as de; '': that of data.languages, else the suffix
    # of the training file's name, else rules for any language.
    source_language: str = key("")
    # Language models.
    search: str = key("sample", choices=("sample", "beam"))  # sample | beam
    seed: int = key(0, NOT_NEGATIVE)  # for sampling
    temperature: float = key(1.0, (0, 100))  # divides the logits; 0 takes the most probable token
    # sample from the k most probable tokens (Fan et al. 2018); 0: from all
    top_k: int = key(0, NOT_NEGATIVE)
    # sample from the smallest set with this probability (Holtzman et al. 2020)
    top_p: float = key(1.0, (1e-6, 1))
    max_new_tokens: int = key(200, POSITIVE)  # maximum tokens after a prompt


@dataclasses.dataclass(frozen=True)
class EvaluateConfig:
    """The weights to use after training, and their scores."""

    # The weights to use after training; best | last: of one checkpoint | average: the mean of
    # the last average_last_n [6.1] | auto: the best on validation of three: the best checkpoint,
    # that mean, and the mean of the average_last_n up to the best.
    checkpoint: str = key("auto", choices=("auto", "best", "last", "average"))
    average_last_n: int = key(1, POSITIVE, "recipe")  # number of checkpoints
    # for evaluations during training; final scores use that of decode
    training_beam_size: int = key(1, (1, 10_000))
    # Decoded during training, each up to 1.5 times its reference's tokens plus 5; at the end, all.
    max_sentences: int = key(500, POSITIVE)
    # Final scores also translate six perturbed copies of at most this many test pairs:
    # capitals, title case, no final punctuation, typing errors, joined, unseen names; 0: none.
    perturbed_sentences: int = key(0, NOT_NEGATIVE)
    # Attention snapshots, saved at each evaluation in attention_snapshots/, but not by runs of a
    # sweep: statistics over this many validation texts (0: no snapshots), and the weights of
    # this many texts.
    snapshot_statistics: int = key(64, NOT_NEGATIVE)
    snapshot_sentences: int = key(3, NOT_NEGATIVE)
    # auto | 13a | intl | char | zh | ja-mecab | ko-mecab | none: for BLEU, and for TER in scripts
    # without blanks between words; auto: by the script of the references (docs/own_text.md).
    sacrebleu_tokenizer: str = key("auto", signs="translation captioning")
    # language code: also score lowercased, Moses-tokenised text, as in papers on Multi30k
    moses: str = key("", choices=tuple(MOSES_LANGUAGES.split()))
    bootstrap: int = key(1000, NOT_NEGATIVE)  # resamples for the confidence interval


@dataclasses.dataclass(frozen=True)
class SweepConfig:
    """The trials of a sweep, and how they train."""

    # grid: all trials of sweep() | random | tpe: samples from space()
    search: str = key("grid", facts="trials", choices=("grid", "random", "tpe"))
    trials: int = key(20, POSITIVE, "sweep")  # number of trials for random or tpe
    seed: int = key(0, NOT_NEGATIVE, "trials")  # for the random samples
    # the trial that others are compared with
    baseline: int = key(0, NOT_NEGATIVE, "sweep")
    # database URL of the study; '' is an SQLite file in the workdir
    storage: str = key("", facts="sweep path written")
    # sequential: runs that share a compiled step train one after another | vmap: as one program |
    # auto: vmap on accelerators, sequential on a CPU.
    parallel: str = key("auto", facts="sweep", choices=("auto", "sequential", "vmap"))
    max_vmapped_runs: int = key(64, POSITIVE, "sweep")  # maximum runs of one vmapped program
    # also retry trials that failed in an earlier start
    retry_failed: bool = key(False, facts="sweep")
    # stop runs below the median of earlier ones at the same step (sequential)
    prune: bool = key(False, facts="sweep")


# The sections of a config: the classes with their keys, and facts of all their keys.
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
KEYS: dict[str, Key] = {  # by dotted name
    f"{section}.{field.name}".lstrip("."): about._replace(facts=about.facts | facts)
    for section, (classes, facts) in SECTIONS.items()
    for each in classes
    for field in dataclasses.fields(each)
    for about in field.metadata.values()
}
# Facts of the keys that a run may change when it resumes.
FREE = ("label", "place", "length", "scores", "devices", "sweep", "trials")


@functools.cache
def having(*facts: str) -> tuple[str, ...]:
    """Returns the keys with at least one of these facts, see `FACTS`."""
    assert FACTS.keys() >= {*facts}, facts
    return tuple(key for key, about in KEYS.items() if about.facts.intersection(facts))


def signing(task: str) -> list[str]:
    """Returns the keys that are part of the signatures of all scores of a task."""
    return [key for key, about in KEYS.items() if task in about.signs]
