"""Positional encodings, which act on embeddings, queries and keys, or scores."""
