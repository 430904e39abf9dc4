"""The formats of saved configs, and the upgrades from the formats of earlier releases.

`format` is a number in a run's config.json and in the config of a sweep's sweep.json. Without it,
the format is 1, that of release 0.2. A bundle has the format of its run. Releases reject keys that
they do not know, so a new, renamed or removed key needs a new format: increase `FORMAT` once per
release, and add the upgrade from the format before. It also sets a new key whose default would
change what an older run computes. tests/released has runs and bundles of each release.

Only configs are upgraded. A resumed run writes its config in the newest format, but its other files
stay, so code that reads these must accept what each release since 0.2 wrote.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from transformer.errors import UserError

FORMAT = 2  # the format that this version writes
# For each earlier format, a function that converts a saved config to the next format, in place.
UPGRADES: dict[int, Callable[[dict[str, Any]], None]] = {
    # Adds sinks, gates and the lens of snapshots, which are off; removes data.each_position.
    1: lambda saved: saved.get("data", {}).pop("each_position", None),
}


def upgrade_search(decode: Any) -> Any:
    """Upgrades `decode` in place: before `epsilon`, translators ignored the default, "sample"."""
    if isinstance(decode, dict) and "epsilon" not in decode and decode.get("search") == "sample":
        decode["search"] = "auto"
    return decode


def numbered(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of a config, to be saved, with the number of this version's format."""
    return {"format": FORMAT, **values}


def upgrade(saved: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Upgrades a saved config in place, and returns it without the number of its format.

    Raises UserError if this version cannot read the format.

    Args:
      folder: the folder of the run or sweep, for the error message.
    """
    number = saved.pop("format", 1)
    if not 1 <= number <= FORMAT:
        raise UserError(
            f"{folder} has format {number}, but this version of transformer-jax reads only formats "
            f"1 to {FORMAT}: install the version that wrote it, or a later one"
        )
    for earlier in range(number, FORMAT):
        UPGRADES[earlier](saved)
    upgrade_search(saved.get("decode"))
    return saved
