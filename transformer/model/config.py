"""The architecture's numbers and names, validated once."""

import dataclasses

from transformer.errors import UserError

NORM_POSITIONS = ("post", "pre")
TIED_EMBEDDINGS = ("all", "decoder", "none")
DTYPES = ("float32", "bfloat16")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """What defines an encoder-decoder Transformer; see `configs/base.py` for each field.

    Dropout rates are not here: they are call arguments (`layers.DropoutRates`), so that one
    compiled training step serves any rate.

    Raises:
      UserError: a number is out of range, the heads do not divide the width, a name is unknown,
        or embeddings are tied across vocabularies of different size.
    """

    source_vocab_size: int
    target_vocab_size: int
    d_model: int
    d_ff: int
    num_heads: int
    num_encoder_layers: int
    num_decoder_layers: int
    positions: str
    max_length: int
    activation: str
    norm_position: str
    norm_epsilon: float
    tied_embeddings: str
    attention_bias: bool
    dtype: str

    def __post_init__(self):
        # The registries live beside the classes they list, which take a ModelConfig.
        from transformer.model import layers, positions

        for name in ("d_model", "d_ff", "num_heads", "num_encoder_layers", "num_decoder_layers",
                     "max_length", "source_vocab_size", "target_vocab_size"):  # fmt: skip
            if getattr(self, name) < 1:
                raise UserError(f"model.{name} is {getattr(self, name)}: it must be at least 1")
        if self.d_model % self.num_heads:
            divisors = [n for n in range(1, 65) if self.d_model % n == 0]
            raise UserError(
                f"model.num_heads={self.num_heads} does not divide model.d_model={self.d_model}: "
                f"choose one of {', '.join(map(str, divisors))}"
            )
        if self.d_model % 2:
            raise UserError(f"model.d_model={self.d_model} must be even: sines pair with cosines")
        check_choice("model.positions", self.positions, positions.REGISTRY)
        check_choice("model.activation", self.activation, layers.ACTIVATIONS)
        check_choice("model.norm_position", self.norm_position, NORM_POSITIONS)
        check_choice("model.tied_embeddings", self.tied_embeddings, TIED_EMBEDDINGS)
        check_choice("model.dtype", self.dtype, DTYPES)
        if self.tied_embeddings == "all" and self.source_vocab_size != self.target_vocab_size:
            raise UserError(
                "model.tied_embeddings='all' needs one vocabulary: set tokenizer.joint=True, or "
                "model.tied_embeddings='decoder'"
            )

    @property
    def head_size(self) -> int:
        """K, the width of one head: d_model / num_heads."""
        return self.d_model // self.num_heads


def check_choice(key: str, value: str, choices) -> None:
    """Raises UserError, listing the choices, where `value` is none of them."""
    if value not in choices:
        raise UserError(f"{key}='{value}' is unknown: choose one of {', '.join(sorted(choices))}")
