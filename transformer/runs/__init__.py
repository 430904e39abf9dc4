"""The folders of runs: configs, checkpoints, weights and logs; a Python API of trained models."""
