"""Sentence pairs: sources, tokens and batches."""
