"""The steps and translations of a run's folder, and a way to damage it."""

from tiny_run import command


def steps(folder):
    return sorted(int(path.name) for path in (folder / "checkpoints").iterdir())


def translate(folder, *arguments):
    return command("--mode=translate", f"--workdir={folder}", *arguments, stdin=b"a b\n")


def corrupt_file(checkpoint):
    """Cuts the file that holds a checkpoint's parameters in half."""
    [path] = (checkpoint / "params" / "d").iterdir()
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
