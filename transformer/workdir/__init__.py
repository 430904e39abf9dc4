"""A run's folder: see `experiments.workdir` for now."""
