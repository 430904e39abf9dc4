"""The folders of runs: configs, checkpoints, weights and logs; and a Python API of trained runs."""
