"""The mode `serve`: a page to type into, and a JSON API, for one run or several."""

import logging
from pathlib import Path

from transformer.errors import UserError
from transformer.runs.loaded import LoadedRun, load
from transformer.runs.run import Run
from transformer.runs.workdir import run_folder
from ..process.options import Options

logger = logging.getLogger(__name__)

HOST, PORT = "127.0.0.1", 8000


def serve(run: Run, options: Options) -> None:
    """Serves the run of a folder, and those of `--also`, until a signal comes."""
    try:
        from . import server
        from .routes import Served
    except ModuleNotFoundError as error:
        raise UserError(
            f'--mode=serve needs the package {error.name}: pip install "transformer-jax[serve]"'
        ) from None
    folders = [run.folder, *(run_folder(name) for name in _split_names(options.also))]
    names = name_runs(folders)
    host, port = options.host or HOST, PORT if options.port is None else options.port
    with server.listen(host, port) as listening:
        if not server.is_local(listening):
            logger.warning(
                f"--host={host}: everybody who reaches this address can use it, and nothing is "
                "encrypted: see docs/serving.md"
            )
        runs = [LoadedRun(run), *map(load, folders[1:])]
        served = list(map(Served, names, runs))
        place, number = listening.getsockname()[:2]
        place = f"[{place}]" if ":" in place else place
        logger.info(f"{', '.join(names)}: http://{place}:{number} (Ctrl-C ends it)")
        server.serve_runs(served, listening, [host, *_split_names(options.server_name)])


def name_runs(folders: list[Path]) -> list[str]:
    """Returns the name of each run: that of its folder, with those above it if two are equal."""
    paths = [folder.absolute().resolve().parts for folder in folders]
    for number, path in enumerate(paths):
        if path in paths[:number]:
            raise UserError(f"--also={folders[number]} is served already: name each folder once")
    count = 1
    while len({path[-count:] for path in paths}) < len(paths):
        count += 1
    return ["/".join(path[-count:]) for path in paths]


def _split_names(names: str | None) -> list[str]:
    return [name.strip() for name in (names or "").split(",") if name.strip()]
