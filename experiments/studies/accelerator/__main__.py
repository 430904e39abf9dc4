"""Checks and measures everything on this machine's accelerator, and writes a page about it.

    python -m experiments.studies.accelerator --out=DIR [--data=FOLDER] [--parts=step,tests]

Each part has a process of its own and leaves DIR/PART.json and DIR/PART.log. A later start skips
the parts that are there for this device, version of jax and code. The page is
DIR/docs/results/accelerator.md; `cp -r DIR/docs .` and a line in `nav` of mkdocs.yml take it over.
`--toy` measures tiny models, on a CPU in about three minutes.
"""

import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from experiments.process import logging_to, run_process
from experiments.studies.accelerator import multi30k, page
from experiments.studies.accelerator.parts import NAMES, PARTS, Order, Part
from experiments.studies.accelerator.study import DEVICE, conditions_of, measure, measure_all
from experiments.studies.command import Parser, exit_code, whole
from transformer.errors import UserError

logger = logging.getLogger("experiments.studies.accelerator")  # not that of `__main__`


def choose(names: str) -> list[Part]:
    """Returns the parts of these names, in the order of `PARTS`.

    Raises:
      UserError: there is no part of a name.
    """
    chosen = names.split(",")
    for name in chosen:
        if name not in NAMES:
            raise UserError(f"--parts has {name!r}: choose from {','.join(NAMES)}")
    return [part for part in PARTS if part.name in chosen]


def run(arguments: Sequence[str]) -> None:
    """Measures as the command line says, and writes the page."""
    parser = Parser(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of records and page")
    parser.add_argument("--toy", action="store_true", help="tiny models, for a CPU")
    parser.add_argument("--data", type=Path, help="folder of Multi30k")
    parser.add_argument("--parts", default=",".join(NAMES), help="by default all")
    parser.add_argument("--minutes", type=whole(1, 600), default=9, help="for all parts together")
    flags = parser.parse_args(arguments)
    deadline = time.monotonic() + 60 * flags.minutes
    parts, data = choose(flags.parts), flags.data
    if data or not flags.toy:
        data = multi30k.find_data(data)
    folder = flags.out.expanduser().absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with logging_to("stdout"):
        order = Order(folder, flags.toy, DEVICE.seconds, "", data)
        found = measure(DEVICE, order, 2 * DEVICE.seconds)
        if "result" not in found:
            raise UserError(f"the device cannot be used: {found['error']} in {folder}")
        conditions = conditions_of(found["result"], flags.toy)
        order = order._replace(platform=conditions["platform"])
        if order.platform == "cpu" and not flags.toy:
            raise UserError(
                f"JAX finds no accelerator but a CPU, see {folder / DEVICE.name}.log: install JAX "
                'for it, such as `pip install "jax[cuda13]"`, or try the study with --toy'
            )
        logger.info(f"{conditions['device']['count']} x {conditions['device']['kind']}")
        measure_all(parts, order, conditions, deadline)
        logger.info(f"wrote {page.write(folder, conditions)}")


if __name__ == "__main__":
    # A signal ends the part, too, which would go on and slow down those of a later start.
    sys.exit(run_process(lambda: exit_code(run, sys.argv[1:])))
