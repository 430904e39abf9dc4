"""Texts with labels: sources, tokens and batches."""
