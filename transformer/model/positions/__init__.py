"""Positional encodings: added to embeddings, turning queries and keys, or biasing scores."""
