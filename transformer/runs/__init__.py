"""A run's folder: its config, checkpoints, weights and logs; and a trained run in Python."""
