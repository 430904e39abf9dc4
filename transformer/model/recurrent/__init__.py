"""Recurrent encoder-decoder models, an alternative to the Transformer."""
