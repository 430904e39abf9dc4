"""Pictures with labels, and questions about them: sources, tokens and batches."""
