"""The translator of ours as a PyTorch user writes it: `torch.nn.Transformer` with embeddings."""
# pyright: reportMissingImports=false

import math

import torch
from torch import Tensor, nn

from transformer.data.tokenizer import PAD_ID
from transformer.model.config import ModelConfig


class Translator(nn.Module):
    """Logits of each next target token; the masks let PyTorch take its fastest attention.

    Args:
      rates: of dropout, named as those of ours.
    """

    def __init__(self, config: ModelConfig, rates: dict[str, float]):
        super().__init__()
        width, self.scale = config.d_model, math.sqrt(config.d_model)
        self.target = nn.Embedding(config.target_vocab_size, width)
        tied = config.one_table
        self.source = self.target if tied else nn.Embedding(config.source_vocab_size, width)
        self.output = nn.Linear(width, config.target_vocab_size, bias=False)
        for table in (self.source, self.target, self.output):
            nn.init.normal_(table.weight, std=width**-0.5)
        if config.tied_embeddings != "none":
            self.output.weight = self.target.weight
        self.register_buffer("positions", _sinusoids(config.max_length, width))
        self.dropout = nn.Dropout(rates["embedding"])
        self.transformer = _transformer(config, rates)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Returns the logits, [batch, target length, vocabulary], of padded token ids."""
        padding, length = source == PAD_ID, target.shape[1]
        # Padding stands at a target's end, so that the causal mask hides it from real tokens.
        features = self.transformer(
            self._embed(self.source, source),
            self._embed(self.target, target),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(length),
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return self.output(features)

    def _embed(self, table: nn.Embedding, tokens: Tensor) -> Tensor:
        return self.dropout(table(tokens) * self.scale + self.positions[: tokens.shape[1]])


def _sinusoids(length: int, width: int) -> Tensor:
    """Sinusoidal positions, all sines first."""
    rates = 10_000 ** (-torch.arange(0, width, 2) / width)
    angles = torch.arange(length)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def _transformer(config: ModelConfig, rates: dict[str, float]) -> nn.Transformer:
    """The stacks; only those of pre-norm layers end with a norm, as ours."""
    settings = {
        "d_model": config.d_model,
        "nhead": config.num_heads,
        "dim_feedforward": config.d_ff,
        "layer_norm_eps": config.norm_epsilon,
        "batch_first": True,
        "norm_first": config.normalizes_input,
    }

    def norm() -> nn.Module | None:
        own = nn.LayerNorm(config.d_model, eps=config.norm_epsilon)
        return own if config.normalizes_input else None

    encoder_layer = nn.TransformerEncoderLayer(**settings)
    decoder_layer = nn.TransformerDecoderLayer(**settings)
    depth = config.num_encoder_layers
    encoder = nn.TransformerEncoder(encoder_layer, depth, norm(), enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(decoder_layer, config.num_decoder_layers, norm())
    model = nn.Transformer(
        config.d_model,
        config.num_heads,
        custom_encoder=encoder,
        custom_decoder=decoder,
        batch_first=True,
    )
    for layer in (*encoder.layers, *decoder.layers):
        layer.dropout.p = rates["activation"]
        for name in ("dropout1", "dropout2", "dropout3"):
            if hasattr(layer, name):
                getattr(layer, name).p = rates["residual"]
        for name in ("self_attn", "multihead_attn"):
            if hasattr(layer, name):
                getattr(layer, name).dropout = rates["attention"]
    return model
