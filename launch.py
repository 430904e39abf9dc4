"""Trains, scores and uses models: `python launch.py --config=configs/quickstart.py --workdir=run`.

The installed package provides this command as `transformer-jax`; see `experiments.command.main`.
"""

import sys

try:
    from experiments.command.main import run
except ModuleNotFoundError as error:
    print(f"error: {error}: `make install`, then `source .venv/bin/activate`", file=sys.stderr)
    sys.exit(2)

if __name__ == "__main__":
    run()
