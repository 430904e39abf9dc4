"""The models of Hugging Face's transformers that have our architecture: Marian, and M2M100.

It imports no JAX, so that a process has nothing but the other library.
"""

from typing import Any

from transformer.data.tokenizer import BOS_ID, EOS_ID, PAD_ID
from transformer.model.config import ModelConfig


def make_model(package: Any, config: ModelConfig, **dropouts: float) -> Any:
    """Returns a model of the sizes of ours, without its weights: M2M100 if norms come first.

    Args:
      package: `transformers`.
      dropouts: `dropout`, `attention_dropout` and `activation_dropout`.
    """
    kind = "M2M100" if config.normalizes_input else "Marian"
    model = "M2M100ForConditionalGeneration" if config.normalizes_input else "MarianMTModel"
    settings = getattr(package, f"{kind}Config")(
        vocab_size=config.target_vocab_size,
        d_model=config.d_model,
        encoder_layers=config.num_encoder_layers,
        decoder_layers=config.num_decoder_layers,
        encoder_attention_heads=config.num_heads,
        decoder_attention_heads=config.num_heads,
        encoder_ffn_dim=config.d_ff,
        decoder_ffn_dim=config.d_ff,
        max_position_embeddings=config.max_length,
        activation_function="relu",
        scale_embedding=True,
        tie_word_embeddings=config.one_table,
        share_encoder_decoder_embeddings=config.one_table,
        pad_token_id=PAD_ID,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
        decoder_start_token_id=BOS_ID,
        forced_eos_token_id=None,
        encoder_layerdrop=0.0,  # M2M100 leaves layers out by default
        decoder_layerdrop=0.0,
        **dropouts,
    )
    return getattr(package, model)(settings)
