"""Systems for tests of the rotation; they import nothing, as a peer imports no JAX."""

ENVIRONMENT = {  # of a benchmark
    **{"devices": {"count": 1, "kind": "cpu"}, "cores": 2, "processor": "an abacus"},
    **{"packages": {"jax": "0.0.1"}, "code": {"commit": "0123456789", "changed": False}},
}


def ask(system, order, times):
    """The records of a system that is asked to measure so often, within this process."""
    records = []

    def turn(record):
        records.append(record)
        if len(records) > times:
            raise SystemExit

    try:
        system(order, turn)
    except SystemExit:
        return records
    raise AssertionError("it has ended by itself")


def write(order, turn):
    """Writes its name into a file when it is asked to measure."""
    turn({"ready": order["name"]})
    while True:
        with open(order["file"], "a") as file:
            file.write(order["name"])
        print("a library prints this")
        turn({"seconds": order["seconds"]})


def fill(order, turn):
    """Holds a given number of bytes."""
    held = bytearray(order["bytes"])
    held[::4096] = b"x" * len(held[::4096])
    while True:
        turn({})


def fail(order, turn):
    """Fails before it is ready."""
    raise ValueError("no room")
