"""Trains, scores and uses models: `python launch.py --config=configs/quickstart.py --workdir=run`.

It is the command of the installed package, `transformer-jax`; see `experiments.command.main`.
"""

from experiments.command.main import run

if __name__ == "__main__":
    run()
