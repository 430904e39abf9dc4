"""The validated configuration of a model architecture."""

import dataclasses
import difflib
from typing import Any, NamedTuple

from transformer.errors import UserError

NORMS = ("layer", "rms")
NORM_POSITIONS = ("post", "pre", "both")
QUERY_KEY_NORMS = ("none", "l2", "layer")
ATTENTION_SINKS = ("none", "one", "learned")
ATTENTION_IMPLEMENTATIONS = ("plain", "chunked", "flash")
TIED_EMBEDDINGS = ("all", "decoder", "none")
DTYPES = ("float32", "bfloat16")
MAX_NUMBER = 2**31 - 1
MAX_LAYERS = 1000  # depth of the deepest Transformer (arXiv:2203.00555); each layer is traced
# The size of an axis, which is symbolic in a program for any size, such as an exported program.
Size = int | Any
SEEING = "captioning image_classification visual_question_answering"  # tasks with image inputs
POSITIVE, NOT_NEGATIVE, BELOW_ONE = (1, MAX_NUMBER), (0, MAX_NUMBER), (0, 0.999_999)
FACTS = {
    "label": "a name in tables; a run that resumes may change it, as it may those of the next six",
    "place": "where the text is, and how early it is read",
    "length": "how long a run trains, and when it logs, saves and evaluates",
    "scores": "how a trained model is used and scored",
    "devices": "the devices, and the time that they have",
    "sweep": "how the trials of a sweep are run and compared",
    "trials": "which trials a sweep has, so a sweep that resumes may not change it",
    "path": "names a file or folder, which a downloaded run may not choose",
    "written": "a place that is written to, or connected to: the user's alone",
    "implementation": "how the model is computed, not what: a trained run is used with another",
    "start": "a run may differ in it from the run that it starts from",
    "traced": "an argument of the compiled step",
    "traced_above_zero": "the same, and zero compiles to another step",
    "recipe": "a recipe may set it, by the number of training texts",
    "shared": "the same for all corpora of a mixture: of batches, and of other tasks",
    "tokens": "a limit in tokens, which does not change what is held out",
    "field": "how the text of an evaluation is read, too",
    "draws": "read after the training of a tokenizer",
    "draws_bpe": "how much a tokenizer of kind bpe draws",
    "draws_unigram": "how much a tokenizer of kind unigram draws",
    "search": "which outputs a search finds, besides their number",
    "rare": "in the table of a search only if it is not the default",
    "peers": "of the peers of the benchmark, too; of other keys of a model they have the default",
    "work": "besides the model, what a training step computes",
    "json": "as text a JSON list of objects",
    "parts": "as text a list of names, of which one may be empty",
    "symbols": "as text a list of symbols, to which brackets and quotes belong",
    "factors": "as text a list of pattern=factor",
    "structure": "besides what else the model has: a run has it from the one that it starts from",
}


class Key(NamedTuple):
    """The metadata of a config key; a comment at the key gives the meaning, unit and source.

    Attributes:
      range: the minimum and maximum of a numeric key.
      facts: keys of `FACTS`.
      choices: the allowed values, or the dotted name of an object that lists them; None allows all.
      signs: the tasks that include the key in their score signatures.
    """

    default: Any
    range: tuple[float, float] | None
    facts: frozenset[str]
    choices: Any
    signs: frozenset[str]


def key(
    default: Any,
    range: tuple[float, float] | None = None,
    facts: str = "",
    choices: Any = None,
    signs: str = "",
) -> Any:
    """Returns a dataclass field for a config key; `facts` and `signs` are space-separated names."""
    about = Key(default, range, frozenset(facts.split()), choices, frozenset(signs.split()))
    assert about.facts <= FACTS.keys(), facts
    return dataclasses.field(default=default, metadata={"key": about})


class Dtypes(NamedTuple):
    """The dtypes of activations, and of the operands of linear maps."""

    activations: str
    factors: str


FLOAT32 = Dtypes("float32", "float32")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The configuration of a Transformer or a recurrent baseline: the keys of `config.model`.

    With no encoder layers, the model is a decoder-only language model; with no decoder layers, it
    is encoder-only. Vocabulary and embedding settings of the missing side are ignored.

    Dropout rates are not included: they are call arguments (`layers.DropoutRates`), so that one
    compiled training step works for any rates.

    Raises:
      UserError: a number is out of range, a name is not an allowed choice, or embeddings are tied
        across vocabularies of different sizes. `build.check_names` checks registered names, and
        whether the numbers are valid for the architecture.
    """

    source_vocab_size: int
    target_vocab_size: int
    # transformer | recurrent, its baseline, which uses only these of the keys below: the numbers of
    # layers, d_model, max_length, tied_embeddings, both dtypes, dropout_embedding, dropout_word and
    # dropout_residual (between layers) | bag_of_embeddings, for classifiers (Joulin et al. 2017),
    # which uses only bag_*, bigram_buckets, dropout_embedding, dropout_word, and d_ff for images.
    architecture: str = key("transformer")
    # lstm | lstm_peephole (Greff et al. 2017) | gru (Cho et al. 2014) | rnn
    cell: str = key("lstm")
    # additive (Bahdanau et al. 2015) | multiplicative (Luong et al. 2015) | none: only final states
    recurrent_attention: str = key("additive")
    d_model: int = key(512, POSITIVE, "recipe peers")  # embedding dimension [3.2.2]
    d_ff: int = key(2048, POSITIVE, "recipe peers")  # inner dimension of feed-forward layers [3.3]
    # must divide d_model if head_size is 0 [3.2.2]
    num_heads: int = key(8, POSITIVE, "recipe peers")
    head_size: int = key(0, NOT_NEGATIVE)  # dimension of a head; 0: d_model / num_heads [3.2.2]
    # 1: multi-query (Shazeer 2019); more: grouped-query (Ainslie 2023); 0: num_heads
    num_kv_heads: int = key(0, NOT_NEGATIVE)
    talking_heads: bool = key(False)  # mix scores and weights across heads (Shazeer et al. 2020)
    scale_scores: bool = key(True)  # by 1 / sqrt(d_k), where d_k is the head dimension [3.2.1]
    # none | l2 (Henry et al. 2020) | layer (Dehghani et al. 2023)
    query_key_norm: str = key("none", choices=QUERY_KEY_NORMS)
    # none | one: e^0 in the softmax's denominator, so that a head may attend to nothing (Miller
    # 2023) | learned: the exponential of a logit of each head instead (gpt-oss, OpenAI 2025)
    attention_sink: str = key("none", choices=ATTENTION_SINKS)
    # multiply each head's output by a sigmoid of the layer's input (Qiu et al. 2025)
    head_gate: bool = key(False)
    # [3.1]; 0 for a language model
    num_encoder_layers: int = key(6, (0, MAX_LAYERS), "recipe peers")
    # [3.1]; 0 for a classifier
    num_decoder_layers: int = key(6, (0, MAX_LAYERS), "recipe peers")
    # share parameters across all layers of a stack (Lan et al. 2020)
    share_layers: bool = key(False)
    scan_layers: bool = key(False)  # compile one layer per stack for any depth; slower on a CPU
    # recompute activations in the backward pass (Chen et al. 2016)
    remat: bool = key(False, facts="start peers")
    # relu | gelu | silu; reglu | geglu | swiglu: gated (Shazeer 2020)
    activation: str = key("relu")
    # layer (Ba et al. 2016) | rms (Zhang and Sennrich 2019)
    norm: str = key("layer", choices=NORMS)
    # post [3.1] | pre (Xiong et al. 2020) | both (Ding et al. 2021)
    norm_position: str = key("post", choices=NORM_POSITIONS)
    norm_epsilon: float = key(1e-6, (1e-15, 1), "peers")  # added to the variance
    # all: source, target and output [3.4] | decoder: target and output | none
    tied_embeddings: str = key("all", facts="peers", choices=TIED_EMBEDDINGS)
    output_bias: bool = key(False)  # added to the logits, as in Marian; the paper has none
    attention_bias: bool = key(False, facts="peers")  # in projections; none in the paper [3.2.2]
    # plain: equation 1 | chunked: a chunk of queries at a time, so that memory grows linearly with
    # the length | flash: cuDNN's FlashAttention (Dao et al. 2022), for NVIDIA GPUs and bfloat16,
    # without attention dropout and encodings that change scores or weights
    attention_implementation: str = key(
        "plain", facts="implementation start peers", choices=ATTENTION_IMPLEMENTATIONS
    )
    # float32 | bfloat16: for activations; parameters are always float32
    dtype: str = key("float32", facts="start", choices=DTYPES)
    # float32 | bfloat16: for the operands of linear maps and logits, with float32 sums; '' is
    # `dtype`. bfloat16 is much faster on a CPU with AMX
    matmul_dtype: str = key("", facts="implementation start", choices=("", *DTYPES))
    # sinusoidal [3.5] | split | learned [3.5] | none | rotary | relative_bias | relative_shaw |
    # alibi | grid_sinusoidal | grid_rotary | grid_bias (the last three for images), or a sum such
    # as sinusoidal+rotary; see transformer/model/positions/
    positions: str = key("sinusoidal")
    encoder_positions: str = key("")  # for the encoder; '' is `positions`
    decoder_positions: str = key("")  # for the decoder's self-attention; '' is `positions`
    cross_positions: str = key("none")  # for cross-attention; must not act on embeddings
    # relative_bias: number of distance buckets (Raffel et al. 2020)
    bias_buckets: int = key(32, (4, MAX_NUMBER))
    # relative_bias: maximum distance in tokens; longer distances share one bias
    bias_distance: int = key(128, POSITIVE)
    # relative_shaw: maximum distance in tokens; longer distances share one vector
    shaw_distance: int = key(16, POSITIVE)
    # maximum length in tokens, and number of learned positions
    max_length: int = key(512, (2, MAX_NUMBER), "start structure peers")
    # Images are square: side of a patch in pixels (Dosovitskiy et al. 2021), or 0 if the source is
    # text; side of the image in pixels; and 3 channels (colour) or 1 (grey).
    patch_size: int = key(0, NOT_NEGATIVE, "peers")
    picture_size: int = key(64, (1, 4096), facts="peers", signs=SEEING)
    picture_channels: int = key(3, (1, 3), facts="peers", signs=SEEING)

    def __post_init__(self):
        for name in ("source_vocab_size", "target_vocab_size"):
            check_range(f"model.{name}", getattr(self, name), *POSITIVE)
        for field in dataclasses.fields(self)[2:]:
            check_value(f"model.{field.name}", getattr(self, field.name), field.metadata["key"])
        if not (self.has_encoder or self.has_decoder):
            raise UserError(
                "model.num_encoder_layers and model.num_decoder_layers are both 0: one must be "
                "at least 1"
            )
        if self.patch_size and self.picture_size % self.patch_size:
            raise UserError(
                f"model.patch_size={self.patch_size} does not divide "
                f"model.picture_size={self.picture_size}: choose another"
            )
        if self.patch_size and self.one_table:
            raise UserError(
                "model.tied_embeddings='all' is for texts, and patches are no tokens: set "
                "model.tied_embeddings='decoder'"
            )
        if self.one_table and self.source_vocab_size != self.target_vocab_size:
            raise UserError(
                "model.tied_embeddings='all' needs one vocabulary: set tokenizer.joint=True, or "
                "model.tied_embeddings='decoder'"
            )

    @property
    def has_encoder(self) -> bool:
        """Whether the model reads a source."""
        return self.num_encoder_layers > 0

    @property
    def has_decoder(self) -> bool:
        """Whether the model predicts a target."""
        return self.num_decoder_layers > 0

    @property
    def one_table(self) -> bool:
        """Whether source and target share one embedding table."""
        return self.tied_embeddings == "all" and self.has_encoder and self.has_decoder

    @property
    def head_width(self) -> int:
        """K, the dimension of a head: `head_size`, or d_model / num_heads if `head_size` is 0."""
        return self.head_size or self.d_model // self.num_heads

    @property
    def key_value_heads(self) -> int:
        """The number of key-value heads: `num_kv_heads`, or `num_heads` if `num_kv_heads` is 0."""
        return self.num_kv_heads or self.num_heads

    @property
    def dtypes(self) -> Dtypes:
        """The activation dtype, `dtype`, and the operand dtype, `matmul_dtype` or else `dtype`."""
        return Dtypes(self.dtype, self.matmul_dtype or self.dtype)

    @property
    def encoder_names(self) -> str:
        """The names of the encoder's positional encodings."""
        return self.encoder_positions or self.positions

    @property
    def decoder_names(self) -> str:
        """The names of the positional encodings in the decoder's self-attention."""
        return self.decoder_positions or self.positions

    @property
    def normalizes_input(self) -> bool:
        """Whether each sub-layer's input is normalised, instead of the residual stream itself."""
        return self.norm_position in ("pre", "both")


def check_range(key: str, value: float, smallest: float, largest: float) -> None:
    """Raises UserError if `value` is not between `smallest` and `largest`, inclusive."""
    if not smallest <= value <= largest:
        raise UserError(f"{key}={value} is out of range: it must be from {smallest} to {largest}")


def check_value(name: str, value: Any, about: Key) -> None:
    """Raises UserError if the value of a key is out of range, or is not an allowed choice."""
    if about.range is not None:
        check_range(name, value, *about.range)
    if isinstance(about.choices, tuple):
        check_choice(name, value, about.choices)


def check_choice(key: str, value: str, choices) -> None:
    """Raises UserError, which lists the choices, if `value` is not one of the choices."""
    if value not in choices:
        near = difflib.get_close_matches(value, choices)
        hint = f"; the nearest: {', '.join(near)}" if near else ""
        listed = ", ".join(filter(None, sorted(choices)))
        raise UserError(f"{key}='{value}' is unknown: choose one of {listed}{hint}")


@dataclasses.dataclass(frozen=True)
class DropoutConfig:
    """The dropout rates in `config.model`, passed as call arguments (`layers.DropoutRates`)."""

    # on embeddings plus positions [5.4]
    dropout_embedding: float = key(0.1, BELOW_ONE, "traced_above_zero start recipe peers")
    # on each sub-layer's output [5.4]
    dropout_residual: float = key(0.1, BELOW_ONE, "traced_above_zero start recipe peers")
    # on attention weights; from tensor2tensor, not in the paper
    dropout_attention: float = key(0.0, BELOW_ONE, "traced_above_zero start peers")
    # inside the feed-forward layer; not in the paper
    dropout_activation: float = key(0.0, BELOW_ONE, "traced_above_zero start peers")
    # on whole layers (Fan et al. 2020); not in the paper
    dropout_layer: float = key(0.0, BELOW_ONE, "traced_above_zero start")
    # on the embeddings of whole tokens (Sennrich et al. 2016); not in the paper
    dropout_word: float = key(0.0, BELOW_ONE, "traced_above_zero start")
