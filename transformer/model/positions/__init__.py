"""Positional encodings, which change embeddings, queries and keys, scores, or values."""
