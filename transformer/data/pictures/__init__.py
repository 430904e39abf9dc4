"""Labelled images and questions about them: sources, tokens and batches."""
