"""Files, checkpoints and caches on disk."""
