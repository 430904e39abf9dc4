"""Trains, scores and uses models: `python launch.py --config=configs/quickstart.py --workdir=run`.

The installed package provides this command as `transformer-jax`; see `experiments.command.main`.
"""

from experiments.command.main import run

if __name__ == "__main__":
    run()
