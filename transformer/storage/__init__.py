"""Files, checkpoints and what is cached on disk."""
