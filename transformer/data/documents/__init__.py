"""Documents: sources, tokens and batches."""
