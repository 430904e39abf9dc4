"""The mode `serve`: a page to type into, and a JSON API, for one run or several."""

import importlib
import logging
from pathlib import Path

from ml_collections import ConfigDict

from experiments.options import Options
from experiments.process import share_freed_memory
from transformer.api.run import LoadedRun, load
from transformer.errors import UserError
from transformer.workdir import load_trained, run_folder

logger = logging.getLogger(__name__)

HOST, PORT = "127.0.0.1", 8000
NEEDED = ("starlette", "uvicorn", "prometheus_client")


def serve(config: ConfigDict, folder: Path, options: Options) -> None:
    """Serves the run of a folder, and those of `--also`, until a signal comes.

    Raises:
      UserError: a package is missing, the address is in use or not of this machine, or a folder
        has no trained run.
    """
    for name in NEEDED:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            raise UserError(
                f'--mode=serve needs the package {name}: pip install "transformer-jax[serve]"'
            ) from None
    from experiments.serving import server
    from experiments.serving.limits import Limits
    from experiments.serving.works import Served

    share_freed_memory()
    folders = [folder, *(run_folder(name) for name in _listed(options.also))]
    names = name_runs(folders)
    host, port = options.host or HOST, PORT if options.port is None else options.port
    with server.listen(host, port) as listening:
        if not server.is_local(listening):
            logger.warning(
                f"--host={host}: everybody who reaches this address can use it, and nothing is "
                "encrypted: see docs/serving.md"
            )
        runs = [LoadedRun(folder, config, load_trained(folder, config)), *map(load, folders[1:])]
        served = [Served(name, run) for name, run in zip(names, runs, strict=True)]
        logger.info(f"{', '.join(names)}: {server.address_of(listening)} (Ctrl-C ends it)")
        server.serve_runs(served, listening, [host, *_listed(options.server_name)], Limits())


def name_runs(folders: list[Path]) -> list[str]:
    """Returns the name of each run: that of its folder, with those above it if two are equal.

    Raises:
      UserError: a folder is named twice.
    """
    parts = [folder.absolute().resolve().parts for folder in folders]
    for number, own in enumerate(parts):
        if own in parts[:number]:
            raise UserError(f"--also={folders[number]} is served already: name each folder once")
    count = 1
    while len({own[-count:] for own in parts}) < len(parts):
        count += 1
    return ["/".join(own[-count:]) for own in parts]


def _listed(names: str | None) -> list[str]:
    return [name.strip() for name in (names or "").split(",") if name.strip()]
