"""A cache of XLA's compiled programs on disk; damaged programs are never run but compiled again."""

import hashlib
import logging
from pathlib import Path
from typing import Any

import jax
from jax._src import compilation_cache

from transformer.files import write_bytes

logger = logging.getLogger(__name__)

DIGEST_BYTES = 32
SUFFIX = ".program"


class ProgramCache:
    """Programs as files of a folder, each with a digest of its key and its content.

    It has the methods of JAX's `CacheInterface`. JAX's own cache writes in place, and runs files
    without a check.
    """

    def __init__(self, folder: Path):
        self._path = folder

    def get(self, key: str) -> bytes | None:
        """Returns the program of a key; None if there is none or it is damaged."""
        path = self._path / f"{key}{SUFFIX}"
        try:
            entry = path.read_bytes()
        except FileNotFoundError:
            return None
        digest, program = entry[:DIGEST_BYTES], entry[DIGEST_BYTES:]
        if digest == _digest_of_program(key, program):
            return program
        logger.warning(f"{path} is damaged: the program is compiled again")
        path.unlink(missing_ok=True)
        return None

    def put(self, key: str, value: bytes) -> None:
        """Writes the program of a key atomically."""
        self._path.mkdir(parents=True, exist_ok=True)
        write_bytes(self._path / f"{key}{SUFFIX}", _digest_of_program(key, value) + value)


def _digest_of_program(key: str, program: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\0" + program).digest()


def keep_programs(folder: Path) -> None:
    """Makes XLA cache compiled programs in a folder, so that a second start is fast.

    They are native code: whoever can write there decides what runs here.
    """
    if not hasattr(compilation_cache, "get_file_cache"):
        logger.warning(
            f"compiled programs are not kept: jax {jax.__version__} has no cache to check"
        )
        return

    def get_file_cache(path: str, *_: Any) -> tuple[Any, str]:
        return ProgramCache(Path(path)), path

    compilation_cache.get_file_cache = get_file_cache
    # XLA's own files next to them would be read unchecked.
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
