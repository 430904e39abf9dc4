"""The architecture's numbers and names, validated once."""

import dataclasses
import difflib
from typing import Any, NamedTuple

from transformer.errors import UserError

NORMS = ("layer", "rms")
NORM_POSITIONS = ("post", "pre", "both")
QUERY_KEY_NORMS = ("none", "l2", "layer")
ATTENTION_IMPLEMENTATIONS = ("plain", "chunked", "flash")
TIED_EMBEDDINGS = ("all", "decoder", "none")
DTYPES = ("float32", "bfloat16")
MAX_NUMBER = 2**31 - 1
MAX_LAYERS = 1000  # as the deepest Transformer has, arXiv:2203.00555; each layer is traced
# Of an axis; in a program for any size, such as one that is given away, it is a symbol.
Size = int | Any
# (smallest, largest, fields): every number of a ModelConfig but the sizes of vocabularies.
RANGES: tuple[tuple[float, float, str], ...] = (
    (1, MAX_NUMBER, "d_model d_ff num_heads bias_distance shaw_distance"),
    (0, MAX_NUMBER, "head_size num_kv_heads patch_size"),
    (1, 4096, "picture_size"),
    (1, 3, "picture_channels"),
    (0, MAX_LAYERS, "num_encoder_layers num_decoder_layers"),
    (1e-15, 1, "norm_epsilon"),  # vectors of zeros, as of dropped words, have no deviation
    (2, MAX_NUMBER, "max_length"),
    (4, MAX_NUMBER, "bias_buckets"),
)


class Dtypes(NamedTuple):
    """Of activations, and of the factors of linear maps."""

    activations: str
    factors: str


FLOAT32 = Dtypes("float32", "float32")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The configuration of a Transformer or its recurrent baseline; see `configs/base.py`.

    With no encoder layers it is a decoder alone, a language model; with no decoder layers an
    encoder alone. Vocabulary and embeddings of the missing side are ignored.

    Dropout rates are not here: they are call arguments (`layers.DropoutRates`), so that one
    compiled training step serves any rate.

    Raises:
      UserError: a number is out of range, a name of those above is unknown, or embeddings are tied
        across vocabularies of different size. `build.check_names` checks names of registries, and
        whether the numbers fit the architecture.
    """

    source_vocab_size: int
    target_vocab_size: int
    architecture: str
    cell: str
    recurrent_attention: str
    d_model: int
    d_ff: int
    num_heads: int
    head_size: int
    num_kv_heads: int
    talking_heads: bool
    scale_scores: bool
    query_key_norm: str
    patch_size: int
    picture_size: int
    picture_channels: int
    num_encoder_layers: int
    num_decoder_layers: int
    share_layers: bool
    scan_layers: bool
    remat: bool
    positions: str
    encoder_positions: str
    decoder_positions: str
    cross_positions: str
    bias_buckets: int
    bias_distance: int
    shaw_distance: int
    max_length: int
    activation: str
    norm: str
    norm_position: str
    norm_epsilon: float
    tied_embeddings: str
    output_bias: bool
    attention_bias: bool
    attention_implementation: str
    dtype: str
    matmul_dtype: str

    def __post_init__(self):
        vocabularies = (1, MAX_NUMBER, "source_vocab_size target_vocab_size")
        for smallest, largest, names in (*RANGES, vocabularies):
            for name in names.split():
                check_range(f"model.{name}", getattr(self, name), smallest, largest)
        if not (self.has_encoder or self.has_decoder):
            raise UserError(
                "model.num_encoder_layers and model.num_decoder_layers are both 0: one must be "
                "at least 1"
            )
        check_choice("model.norm", self.norm, NORMS)
        check_choice("model.norm_position", self.norm_position, NORM_POSITIONS)
        check_choice("model.query_key_norm", self.query_key_norm, QUERY_KEY_NORMS)
        check_choice(
            "model.attention_implementation",
            self.attention_implementation,
            ATTENTION_IMPLEMENTATIONS,
        )
        check_choice("model.tied_embeddings", self.tied_embeddings, TIED_EMBEDDINGS)
        check_choice("model.dtype", self.dtype, DTYPES)
        check_choice("model.matmul_dtype", self.dtypes.factors, DTYPES)
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
        """Whether there is a source to read."""
        return self.num_encoder_layers > 0

    @property
    def has_decoder(self) -> bool:
        """Whether there is a target to predict."""
        return self.num_decoder_layers > 0

    @property
    def one_table(self) -> bool:
        """Whether source and target share one embedding table."""
        return self.tied_embeddings == "all" and self.has_encoder and self.has_decoder

    @property
    def head_width(self) -> int:
        """K, the width of one head: `head_size`, or d_model / num_heads if that is 0."""
        return self.head_size or self.d_model // self.num_heads

    @property
    def key_value_heads(self) -> int:
        """The number of key-value heads: `num_kv_heads`, or `num_heads` if that is 0."""
        return self.num_kv_heads or self.num_heads

    @property
    def dtypes(self) -> Dtypes:
        """The dtypes of linear maps: `dtype`, and `matmul_dtype`, or `dtype` if that is ''."""
        return Dtypes(self.dtype, self.matmul_dtype or self.dtype)

    @property
    def encoder_names(self) -> str:
        """The encodings of the encoder."""
        return self.encoder_positions or self.positions

    @property
    def decoder_names(self) -> str:
        """The encodings of the decoder's self-attention."""
        return self.decoder_positions or self.positions

    @property
    def normalizes_input(self) -> bool:
        """Whether a sub-layer's input is normalised, so that the residual stream itself is not."""
        return self.norm_position in ("pre", "both")


def check_range(key: str, value: float, smallest: float, largest: float) -> None:
    """Raises UserError where `value` is not from `smallest` to `largest`."""
    if not smallest <= value <= largest:
        raise UserError(f"{key}={value} is out of range: it must be from {smallest} to {largest}")


def check_choice(key: str, value: str, choices) -> None:
    """Raises UserError, listing the choices, if `value` is not one of them."""
    if value not in choices:
        near = difflib.get_close_matches(value, choices)
        hint = f"; the nearest: {', '.join(near)}" if near else ""
        listed = ", ".join(filter(None, sorted(choices)))
        raise UserError(f"{key}='{value}' is unknown: choose one of {listed}{hint}")
