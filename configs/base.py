"""All keys of an experiment with their default, unit and source.

The defaults are the base model of "Attention Is All You Need" (Vaswani et al. 2017; sections in
brackets below) on the built-in grammar. An experiment's file, or the command line
(`--config.model.num_heads=4`), changes only what differs:

    from configs import base

    def get_config():
        config = base.get_config()
        config.model.num_heads = 4
        return config
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    """Returns the default configuration, locked: a key that is not here cannot be set."""
    config = ConfigDict()
    config.name = "base"  # in tables and titles
    config.task = "translation"  # a key of transformer.tasks.REGISTRY
    config.seed = 0  # of parameters, dropout and the order of batches
    # "size" sets keys by the number of training pairs (configs/recipes/size.py) unless the user
    # did; for configs that start from own_text.py. "none" sets none.
    config.recipe = "none"
    config.model = _model()
    config.data = _data()
    config.tokenizer = _tokenizer()
    config.optimizer = _optimizer()
    config.train = _train()
    config.decode = _decode()
    config.evaluate = _evaluate()
    config.sweep = _sweep()
    return config.lock()


def _model() -> ConfigDict:
    model = ConfigDict()
    # transformer | recurrent, its baseline, which uses only these keys below: the numbers of
    # layers, d_model, max_length, tied_embeddings, both dtypes, dropouts of embedding, word and
    # residual (between layers) | bag_of_embeddings, for classifiers (Joulin et al. 2017), which
    # uses only bag_*, bigram_buckets, dropouts of embedding and word. Pictures: also d_ff.
    model.architecture = "transformer"
    model.cell = "lstm"  # lstm | lstm_peephole (Greff et al. 2017) | gru (Cho et al. 2014) | rnn
    # additive (Bahdanau et al. 2015) | multiplicative (Luong et al. 2015) | none: final states
    model.recurrent_attention = "additive"
    model.d_model = 512  # width of the residual stream [3.2.2]
    model.d_ff = 2048  # inner width of the feed-forward layers [3.3]
    model.num_heads = 8  # must divide d_model if head_size is 0 [3.2.2]
    model.head_size = 0  # width of a head; 0: d_model / num_heads [3.2.2]
    model.num_kv_heads = 0  # 1: multi-query (Shazeer 2019), or grouped (Ainslie 2023); 0: num_heads
    model.talking_heads = False  # heads mix scores and weights (Shazeer et al. 2020)
    model.scale_scores = True  # by 1 / sqrt(d_k), d_k the width of a head [3.2.1]
    model.query_key_norm = "none"  # none | l2 (Henry et al. 2020) | layer (Dehghani et al. 2023)
    model.num_encoder_layers = 6  # [3.1]; a language model has none
    model.num_decoder_layers = 6  # [3.1]; a classifier has none
    model.share_layers = False  # all layers of a stack have the same parameters (Lan et al. 2020)
    model.scan_layers = False  # compile one layer per stack for any depth; slower on a CPU
    model.remat = False  # activations are computed again for the gradient (Chen et al. 2016)
    _add_positions(model)
    model.activation = "relu"  # relu | gelu | silu; reglu | geglu | swiglu: gated (Shazeer 2020)
    model.norm = "layer"  # layer (Ba et al. 2016) | rms (Zhang and Sennrich 2019)
    model.norm_position = "post"  # post [3.1] | pre (Xiong et al. 2020) | both (Ding et al. 2021)
    model.norm_epsilon = 1e-6  # added to the variance
    model.tied_embeddings = "all"  # all three [3.4] | decoder: target and output | none
    model.output_bias = False  # added to the logits, as in Marian; the paper has none
    model.attention_bias = False  # the paper's projections have none [3.2.2]
    # plain: equation 1 as it stands | chunked: some queries at a time, so that memory grows with
    # the length, not its square | flash: cuDNN's (Dao et al. 2022), for NVIDIA GPUs and bfloat16,
    # without dropout of weights or encodings that change scores or weights
    model.attention_implementation = "plain"
    model.pooling = "mean"  # mean | first | attention (Yang et al. 2016): of a classifier
    model.bag_of_embeddings_width = 16  # of the embeddings
    model.bag_of_embeddings_hidden = 16  # units of the hidden layer
    model.bigram_buckets = 0  # rows of the table that bigrams are hashed into; 0: no bigrams
    model.dropout_embedding = 0.1  # on embeddings plus positions [5.4]
    model.dropout_residual = 0.1  # on each sub-layer's output [5.4]
    model.dropout_attention = 0.0  # on attention weights; not in the paper, in tensor2tensor
    model.dropout_activation = 0.0  # inside the feed-forward layer; not in the paper
    model.dropout_layer = 0.0  # whole layers (Fan et al. 2020); not in the paper
    model.dropout_word = 0.0  # embeddings of whole tokens (Sennrich et al. 2016); not in the paper
    model.dtype = "float32"  # float32 | bfloat16: of activations; parameters are always float32
    # float32 | bfloat16: of the factors of linear maps and logits, with sums of float32; '' is
    # `dtype`. bfloat16 is much faster on a CPU with AMX
    model.matmul_dtype = ""
    return model


def _add_positions(model: ConfigDict) -> None:
    """Adds the positional encodings, and the patches of pictures."""
    # sinusoidal [3.5] | split | learned [3.5] | none | rotary | relative_bias | relative_shaw |
    # alibi | grid_sinusoidal | grid_rotary | grid_bias, the last three for pictures, or a sum such
    # as sinusoidal+rotary; see transformer/model/positions/
    model.positions = "sinusoidal"
    model.encoder_positions = ""  # of the encoder; '' is `positions`
    model.decoder_positions = ""  # of the decoder's self-attention; '' is `positions`
    model.cross_positions = "none"  # between target and source: none that acts on embeddings
    model.bias_buckets = 32  # relative_bias: buckets of distances (Raffel et al. 2020)
    model.bias_distance = 128  # relative_bias: tokens; longer distances share one bias
    model.shaw_distance = 16  # relative_shaw: tokens; longer distances share one vector
    model.max_length = 512  # maximum length in tokens, and the size of a learned table of positions
    # Of pictures, which are squares: pixels of a patch's side (Dosovitskiy et al. 2021) and of the
    # whole side, and 3 channels (colour) or 1 (grey); 0: the source is text.
    model.patch_size = 0
    model.picture_size = 64
    model.picture_channels = 3


def _data() -> ConfigDict:
    data = ConfigDict()
    # grammar | copy | reverse | files | tfds: of pairs; toy_reviews | files | tfds: of labelled
    # texts; quotations | any of pairs (their sources): of a language model; scenes | digits | idx |
    # easy_vqa | files | tfds: of pictures.
    data.source = "grammar"
    data.seed = 0  # of generated corpora, and of random holdout
    # Pairs or labelled texts of generated sources. With files, a validation or test set without a
    # file of its own is held out of the training text.
    data.train_size = 20_000
    data.validation_size = 500
    data.test_size = 500
    # Pairs to score beyond the training length, see sources.open_source.
    data.length_generalization_size = 0
    # files: names below `path`, plain or compressed. Without a target file, the source has rows of
    # both sides: .tsv, .csv, .jsonl, .tmx, .parquet, or a folder (docs/text_files.md).
    # --mode=fetch downloads the corpus that `fetch` names, below `cache_dir` if `path` is empty.
    data.path = ""
    data.fetch = ""
    data.train_source = "train.en"
    data.train_target = "train.de"
    data.validation_source = ""
    data.validation_target = ""
    data.test_source = ""
    data.test_target = ""
    # If both sides are in one file: columns of a header, keys of objects (translation.en is a key
    # inside another), languages of TMX; or numbers: columns from 0 of a table.
    data.source_field = "0"
    data.target_field = "1"
    data.holdout = "hash"  # hash: of the text, not its position | end: the last lines, test last
    data.separator = ""  # between the columns of a table; '': as its content shows
    data.quote = ""  # around its cells; the same
    # The same for labelled texts, perhaps of several fields: title,text; documents: text_field.
    data.text_field = "text"
    data.label_field = "label"
    data.skip_broken = False  # skip and count broken rows, instead of refusing the file
    # tfds: dataset name, fields (source, target), (text, label) or (text,), folder ('': its own)
    data.tfds_name = ""
    data.tfds_fields = ("de", "en")
    data.tfds_dir = ""
    data.tfds_train = "train"
    data.tfds_validation = "validation"
    data.tfds_test = "test"
    # Several corpora of translation: a dict for each with the keys of `data` that it changes, and
    # name (for tables and files), weight (1.0), source_tag (tags put before each source, such as
    # "<2de>") and reverse (True swaps source and target). Set in a config file, or as JSON.
    data.corpora = ()
    # Pairs of a corpus in an epoch ~ weight * pairs ** (1 / temperature) (Arivazhagan et al. 2019).
    data.temperature = 1.0
    _add_rows(data)
    return data


def _add_rows(data: ConfigDict) -> None:
    """Adds how texts become batches."""
    # Pictures: the column of a table, whose questions are text_field; whether picture files are
    # handwriting, read as MNIST; whether pictures are empty, to measure what questions alone tell.
    data.picture_field = "picture"
    data.ink = False
    data.blind = False
    # Random changes of training pictures, such as crop+flip: of crop, flip, rotate and colour.
    data.augment = ""
    # Language models: what a document is, and the tokens of a sequence, of several or of a part.
    # A split without a file is this fraction of the text's end; of pictures, if its size is 0.
    data.documents = "line"  # line | paragraph (blank lines between) | file
    data.context = 256
    data.each_position = False  # a sequence per position: no look-ahead mask is needed, slower
    data.validation_fraction = 0.1
    data.test_fraction = 0.0
    # Training pairs of files: only this many of those without a fault of their own, chosen by the
    # hash of the source, so that a smaller number is a subset of a larger one; 0: all.
    data.train_subset = 0
    # Cleaning of the training pairs.
    data.max_characters = 2000  # per side
    data.max_length_ratio = 3.0  # longer over shorter side, see CleaningRules
    data.remove_duplicates = True
    data.remove_near_duplicates = False  # equal but for case, digits, punctuation, blanks
    data.languages = ("", "")  # of a file's source and target, such as en,de; '' is any
    # Smallest kept probability of a side's language, relative to the most probable language.
    data.min_language_ratio = 0.05
    data.min_script_fraction = 0.0  # of a side's sentences, for a script to be usual; 0 keeps all
    data.remove_copies = False  # targets that repeat most of their source
    data.remove_mojibake = False  # "Ã¼" for "ü"
    data.match_numbers = False  # drops pairs whose numbers differ, see rules.numbers_differ
    data.max_token_ratio = 0.0  # longer over shorter side, 10 tokens added to both; 0 keeps all
    # Per side, end of sentence included; longer training pairs are dropped. A text to classify is
    # cut to this length, its begin included.
    data.max_tokens = 128
    data.max_oov_rate = 0.01  # refuse to start above this fraction of unknown tokens
    _add_augmentation(data)
    # Batches.
    data.batch_tokens = 4096  # per side, padding included
    data.batch_sentences = 0  # maximum sequences per batch; 0: limited only by batch_tokens
    data.num_buckets = 8  # static lengths of batches; each compiles once
    # Batch sizes, except those of language models, are multiples of this (or of batch_sentences,
    # if that is less), even if a batch then exceeds batch_tokens. Empty rows fill up a batch that
    # the devices do not divide.
    data.batch_multiple = 8
    data.prefetch = 8  # batches made ahead, for whose shapes the step also compiles ahead
    data.cache_dir = ""  # tokenizers and token arrays by content; '' is ~/.cache/transformer


def _add_augmentation(data: ConfigDict) -> None:
    """Adds the fractions of the training pairs that a batch modifies, each pair in one way.

    See transformer/data/parallel/modifiers.py. The tokenizer is trained on modified pairs, too.
    """
    data.augment_typos = 0.0  # typing errors, or no accents, in the source
    data.augment_punctuation = 0.0  # both sides without final punctuation
    data.augment_joined = 0.0  # two or three neighbouring pairs in one line
    data.augment_copied = 0.0  # a new name, number or placeholder, the same on both sides


def _tokenizer() -> ConfigDict:
    tokenizer = ConfigDict()
    # keep: with train.init_from, the tokenizers of that run (other keys here are not used) |
    # grow: the same with subwords of this text added, up to vocab_size in all | new: trained here.
    tokenizer.initial = "keep"
    tokenizer.kind = "bpe"  # bpe (Sennrich et al. 2016) | unigram (Kudo 2018) | word | char
    tokenizer.joint = True  # one vocabulary for both languages; needed to tie all embeddings
    tokenizer.vocab_size = 37_000  # [5.1]; of each side if not joint
    tokenizer.character_coverage = 1.0  # fraction of the text's characters that get a subword
    # bpe, unigram: 256 subwords spell all other characters in bytes, which are unknown otherwise.
    tokenizer.byte_fallback = False
    # sentencepiece's rule by which sources, and texts to classify, are read; nmt_nfkc_cf also folds
    # case. Targets, and texts of language models, keep their characters in NFC.
    tokenizer.normalization = "nmt_nfkc"
    tokenizer.max_sentences = 2_000_000  # sample of the training text that trains the tokenizer
    tokenizer.split_digits = False  # each digit is a subword of its own
    # Strings that are always one subword and come back as they are, such as "{name}" or "<URL>".
    tokenizer.symbols = ()
    tokenizer.placeholders = False  # addresses, numbers, names are numbered tokens, and come back
    # Each training batch draws its segmentations; 0: the best ones, as in held-out text. bpe:
    # probability that a merge is left out, 0.1 in Provilkov et al. 2020.
    tokenizer.bpe_dropout = 0.0
    # unigram: exponent of a segmentation's probability (Kudo 2018); near 0 all are about as likely.
    tokenizer.sampling_alpha = 0.0
    tokenizer.sampling_sides = "both"  # both | source | target
    # Files of existing sentencepiece models, the second for the target if not joint; '' trains one.
    tokenizer.model = ""
    tokenizer.target_model = ""
    # Blanks and ends of lines are tokens as they stand, for language models of running text.
    tokenizer.keep_spaces = False
    return tokenizer


def _optimizer() -> ConfigDict:
    optimizer = ConfigDict()
    # adam [5.3] | adamw (Loshchilov and Hutter 2019) | lion (Chen et al. 2023), for a third to a
    # tenth of Adam's rates | muon (Jordan et al. 2024) for kernels, adamw for the rest, at Adam's
    # rates (Liu et al. 2025) | adafactor (Shazeer and Stern 2018), whose rates are relative to the
    # RMS of a parameter: at most 0.01 in the paper; it uses no beta1, beta2 and epsilon
    optimizer.name = "adam"
    optimizer.beta1 = 0.9  # [5.3]
    optimizer.beta2 = 0.98  # [5.3]
    optimizer.epsilon = 1e-9  # [5.3]
    optimizer.muon_momentum = 0.95  # muon: of the gradients of kernels
    optimizer.weight_decay = 0.0  # decoupled, times the learning rate; not with adam
    optimizer.clip_norm = 0.0  # global norm of the gradient; 0 never clips
    # noam [5.3, eq. 3] | inverse_sqrt | constant | cosine | linear | wsd (Hägele et al. 2024); the
    # last three fall to zero at the end that train.steps or train.epochs sets
    optimizer.schedule = "noam"
    optimizer.decay_fraction = 0.2  # wsd: of the updates, those in which the rate falls
    optimizer.learning_rate = 1.0  # noam: a factor; others: the peak
    optimizer.warmup_steps = 4000  # updates [5.3]
    optimizer.gradient_accumulation_steps = 1  # batches per update; all tokens have the same weight
    return optimizer


def _train() -> ConfigDict:
    train = ConfigDict()
    train.steps = 100_000  # batches [5.2]; the run ends at the first of steps, epochs, minutes
    train.epochs = 0.0  # passes over the training text; 0: no limit
    # Over all restarts, with compilation and evaluations; final scores and pictures come on top.
    train.minutes = 0.0  # 0: no limit
    train.label_smoothing = 0.1  # [5.4]
    # Weight of the divergence between two passes with different dropout, 5 in Liang et al. 2021 for
    # translation; 0: one pass. A step takes twice the time and memory.
    train.r_drop = 0.0
    # none | balanced: equal total weight per class in the loss; for classification alone.
    train.class_weights = "none"
    # Picture classes: alpha of mixup (Zhang et al. 2018), such as 0.2; 0 for none.
    train.mixup = 0.0
    _add_start(train)
    train.ema_decay = 0.0  # of weights, per update, for evaluation; 0: none
    train.log_every = 100  # steps
    train.evaluate_every = 1000  # steps; 0: once an epoch. A checkpoint is saved before each
    train.save_minutes = 10.0  # maximum minutes between checkpoints; 0: only before evaluations
    train.keep_last = 5  # checkpoints; at least evaluate.average_last_n
    # On validation: any metric of the task in transformer/metrics/registry.py; ties by the loss.
    train.best_metric = "bleu"
    train.patience = 0  # evaluations without a better best_metric before stopping; 0: never
    # Devices along each axis, such as data=4,tensor=2: data divides the rows of a batch, fsdp also
    # the state (ZeRO), tensor heads, inner features and vocabulary; auto: all for data.
    train.mesh = "auto"
    # Seconds within which a step of several processes ends and they meet; if not, all end.
    train.deadline = 300.0
    train.max_nonfinite_steps = 50  # in a row, before giving up; counted at log_every
    return train


def _add_start(train: ConfigDict) -> None:
    """Adds which parameters a run starts from, and which of them it trains."""
    # Folder of a run of the same task and architecture, finished or stopped, whose weights this one
    # starts from: at step 0, with a fresh optimizer; '': parameters are drawn by the seed.
    train.init_from = ""
    # Text files of word vectors, of GloVe or word2vec, of the model's width: tokens that are words
    # there start with them, scaled to the RMS of the drawn table, which is one for both sides with
    # model.tied_embeddings=all. Classifiers have a source, language models a target; '': none.
    train.source_vectors = ""
    train.target_vectors = ""
    # Regular expressions, searched in names of parameters such as
    # encoder_layers_0/self_attention/query/kernel: init_pattern chooses the parameters to load from
    # that run (the seed draws the rest), freeze those that are not trained ('': none).
    train.init_pattern = ".*"
    train.freeze = ""
    # (pattern, factor) pairs: the first that matches a parameter multiplies its learning rate
    # (Howard and Ruder 2018, 3.2); on the command line pattern=factor,pattern=factor.
    train.learning_rate_factors = ()


def _decode() -> ConfigDict:
    decode = ConfigDict()
    decode.beam_size = 4  # [6.1]; 1 is greedy
    decode.length_penalty = "gnmt"  # gnmt [6.1] (Wu et al. 2016, eq. 14) | average | none
    decode.alpha = 0.6  # exponent of the length penalty [6.1]
    decode.max_ratio = 1.0  # longest output: max_ratio * source length + max_extra, in tokens
    decode.max_extra = 50  # [6.1]
    decode.batch_size = 64  # sentences at once, divided among the cores of a CPU
    decode.num_best = 1  # translations, or classes, printed for each sentence, best first
    # Lines in capitals or title case are read in sentence case and translated in that of the line.
    decode.transfer_case = False
    # --mode=translate splits lines of several sentences; scoring never does; auto: into single
    # sentences or, if a tenth of the training sources has several, into groups as long as 99% of
    # the sources | always: into single sentences | never: lines are cut to model.max_length.
    decode.split_sentences = "auto"
    # Language whose rules split sentences, such as de; '': that of data.languages, else the ending
    # of the training file's name, else rules for any language.
    decode.source_language = ""
    # Language models.
    decode.search = "sample"  # sample | beam
    decode.seed = 0  # of the samples
    decode.temperature = 1.0  # divides the logits; 0 takes the most probable token
    decode.top_k = 0  # sample from the k most probable tokens (Fan et al. 2018); 0: from all
    decode.top_p = 1.0  # from the smallest set with this probability (Holtzman et al. 2020)
    decode.max_new_tokens = 200  # tokens after a prompt
    return decode


def _evaluate() -> ConfigDict:
    evaluate = ConfigDict()
    # The weights to use after the training; best | last: of one checkpoint | average: the mean of
    # the last average_last_n [6.1] | auto: of the best checkpoint, that mean, and the mean of
    # average_last_n up to the best, the one that scores best on validation.
    evaluate.checkpoint = "auto"
    evaluate.average_last_n = 1  # checkpoints
    evaluate.training_beam_size = 1  # of evaluations during training; final scores use decode's
    # Decoded during training, each up to 1.5 times its reference's tokens and 5; at the end, all.
    evaluate.max_sentences = 500
    # Final scores also translate six perturbed copies of at most this many test pairs:
    # capitals, title case, no final punctuation, typing errors, joined, unseen names; 0: none.
    evaluate.perturbed_sentences = 0
    # Attention snapshots, saved at each evaluation in attention_snapshots/, but not by runs of a
    # sweep: statistics over this many validation texts (0: no snapshots), and the weights of this
    # many of them.
    evaluate.snapshot_statistics = 64
    evaluate.snapshot_sentences = 3
    # auto | 13a | intl | char | zh | ja-mecab | ko-mecab | none: of BLEU, and of TER for scripts
    # without blanks between words; auto: by the script of the references (docs/own_text.md).
    evaluate.sacrebleu_tokenizer = "auto"
    evaluate.moses = ""  # language code: also score lowercased, Moses-tokenised, as Multi30k papers
    evaluate.bootstrap = 1000  # resamples of the confidence interval
    return evaluate


def _sweep() -> ConfigDict:
    sweep = ConfigDict()
    sweep.search = "grid"  # grid: all trials of sweep() | random | tpe: draws from space()
    sweep.trials = 20  # trials that random or tpe draw
    sweep.seed = 0  # of the draws
    sweep.baseline = 0  # trial whose setting the others are compared with
    sweep.storage = ""  # database URL of the study; '' is an SQLite file in the workdir
    # sequential: runs that share a compiled step train one after another | vmap: as one program |
    # auto: vmap on accelerators, sequential on a CPU.
    sweep.parallel = "auto"
    sweep.max_vmapped_runs = 64  # maximum runs of one vmapped program
    sweep.retry_failed = False  # also train again the trials that failed in an earlier start
    sweep.prune = False  # stop runs below the median of earlier ones at the same step (sequential)
    return sweep
