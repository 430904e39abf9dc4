"""Our model as a PyTorch user would implement it: `torch.nn.Transformer` with embeddings."""
# pyright: reportMissingImports=false

import math

import torch
from torch import Tensor, nn

from transformer.data.tokenizer import PAD_ID
from transformer.model.config import ModelConfig

# Maps dropout rates of our config to the dropout modules of a PyTorch layer.
DROPOUTS = {"activation": ("dropout",), "residual": ("dropout1", "dropout2", "dropout3")}


class TorchTranslator(nn.Module):
    """A model that returns next-token logits, with masks that allow PyTorch's fastest attention.

    Args:
      rates: dropout rates, keyed by their names in our config.
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
        angles = torch.arange(config.max_length)[:, None] * (
            10_000 ** (-torch.arange(0, width, 2) / width)
        )
        self.register_buffer("positions", torch.cat([angles.sin(), angles.cos()], dim=1))
        self.dropout = nn.Dropout(rates["embedding"])
        self.transformer = _transformer(config, rates)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Returns logits of shape [batch, target length, vocabulary] for padded token ids."""
        padding, length = source == PAD_ID, target.shape[1]
        # Targets are padded at the end, so the causal mask hides the padding from real tokens.
        features = self.transformer(
            self._embed(self.source, source),
            self._embed(self.target, target),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(length, target.device),
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return self.output(features)

    def _embed(self, table: nn.Embedding, tokens: Tensor) -> Tensor:
        return self.dropout(table(tokens) * self.scale + self.positions[: tokens.shape[1]])


def _transformer(config: ModelConfig, rates: dict[str, float]) -> nn.Transformer:
    """Returns an encoder-decoder. As in our model, stacks end with a norm only if pre-norm."""
    width, heads, pre = config.d_model, config.num_heads, config.normalizes_input
    sizes = {"d_model": width, "nhead": heads, "dim_feedforward": config.d_ff}
    settings = {**sizes, "batch_first": True, "norm_first": pre}
    settings["layer_norm_eps"] = config.norm_epsilon
    norms = [nn.LayerNorm(width, eps=config.norm_epsilon) if pre else None for _ in range(2)]
    layer, depth = nn.TransformerEncoderLayer(**settings), config.num_encoder_layers
    encoder = nn.TransformerEncoder(layer, depth, norms[0], enable_nested_tensor=False)
    layer, depth = nn.TransformerDecoderLayer(**settings), config.num_decoder_layers
    decoder = nn.TransformerDecoder(layer, depth, norms[1])
    for name, module in (*encoder.named_modules(), *decoder.named_modules()):
        for kind, names in DROPOUTS.items():
            if name.rpartition(".")[2] in names:
                module.p = rates[kind]
        if isinstance(module, nn.MultiheadAttention):
            module.dropout = rates["attention"]
    stacks = {"custom_encoder": encoder, "custom_decoder": decoder}
    return nn.Transformer(width, heads, batch_first=True, **stacks)
