"""A store of objects below a folder of this machine, for `fsspec`: no renames and no appends.

As `--module` of a command it makes `fake://FOLDER` known to that process.
"""

import os
from pathlib import Path

import fsspec
from fsspec.spec import AbstractFileSystem

from experiments.command import bucket


class FakeStore(AbstractFileSystem):
    """Objects are files, and an object exists from the end of its upload on."""

    protocol = "fake"
    cachable = False

    @classmethod
    def _strip_protocol(cls, path):
        return str(path).removeprefix("fake://")

    def find(self, path, detail=False, **_):
        if not Path(path).parent.exists():
            raise FileNotFoundError("The specified bucket does not exist")
        files = [each for each in Path(path).rglob("*") if each.is_file()]
        names = [str(each) for each in files if each.suffix != ".upload"]
        return {name: self.info(name) for name in names} if detail else names

    def info(self, path, **_):
        stat = os.stat(path)
        return {"name": path, "size": stat.st_size, "ETag": f"{stat.st_mtime_ns} {stat.st_ino}"}

    def exists(self, path, **_):
        return Path(path).exists()

    def pipe_file(self, path, value, mode="overwrite", **_):
        place = Path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        if mode == "create":
            with place.open("xb") as file:
                file.write(value)
        else:
            partial = place.with_name(f"{os.getpid()}.upload")
            partial.write_bytes(value)
            partial.rename(place)

    def put_file(self, here, there, mode="overwrite", **_):
        self.pipe_file(there, Path(here).read_bytes(), mode)

    def cat_file(self, path, **_):
        return Path(path).read_bytes()

    def get_file(self, there, here, **_):
        Path(here).write_bytes(Path(there).read_bytes())

    def rm_file(self, path):
        os.unlink(path)

    def mv(self, *_, **__):
        raise PermissionError("renames are refused")


fsspec.register_implementation("fake", FakeStore, clobber=True)
bucket.EVERY = 0.2
