"""Data pipelines, from text and images to batches."""
