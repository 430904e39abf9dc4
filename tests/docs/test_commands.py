"""No page names a command, flag, mode, key or file that there is not."""

import importlib.util
import re
import shlex
import tomllib

import pytest
from absl import flags
from pages import PAGES, code_of, commands_of

from configs import base
from experiments.command.main import define_flags, parse
from experiments.process.config import override, read_experiment
from experiments.process.modes import MODES
from places import ROOT
from transformer.checks import check
from transformer.errors import UserError

pytestmark = pytest.mark.full
GROUPS = "model|data|tokenizer|optimizer|train|decode|evaluate|sweep"
KEY = re.compile(rf"(?:config\.)?((?:{GROUPS})\.[a-z]\w*|(?<=config\.)\w+)(=.*)?")
FILES = re.compile(r"\.(json|jsonl|py|de|en|npz|gz|model|safetensors)$")  # of run.json, train.de
PATH = re.compile(r"(?:(?:configs|docs|experiments|studies|tests|transformer)/|[\w/]+\.py\b)[^ ]*")
WRITTEN_BY_READERS = ("both.py", "ru_mix.py", "three.py", "variant.py")
MODULES = ("experiments", "studies")  # folders of commands
PLACEHOLDER = re.compile(r"\.\.\.|<\w+>|\b(DIR|FILE|NAME|PART)\b")
INCOMPLETE = re.compile(r"\.\.\.|=MODE\b")  # a command with a part left out
FOREIGN = ("--xla_",)


def check_launch(arguments: list[str]) -> None:
    """Raises UserError if the flags are not those of the mode, or no config has these values."""
    values = flags.FlagValues()
    define_flags(values)
    overrides = parse(["launch.py", *arguments], values)
    config = read_experiment(values.config).config if values.config else base.get_config()
    for key, text in overrides:
        override(config, key, text)
    check(config)


def check_module(name: str, arguments: list[str]) -> None:
    """Raises ValueError if there is no such module of ours, or it has no such flag."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ValueError(f"no module {name}")
    origin = (
        importlib.util.find_spec(f"{name}.__main__") if spec.submodule_search_locations else spec
    )
    source = (ROOT / origin.origin).read_text("utf-8")
    for flag in (word.partition("=")[0] for word in arguments if word.startswith("--")):
        if f'"{flag}"' not in source:
            raise ValueError(f"{name} has no {flag}")


def check_make(arguments: list[str]) -> None:
    """Raises ValueError if make has no such target or variable."""
    rules = (ROOT / "Makefile").read_text("utf-8")
    for word in arguments:
        name, variable, _ = word.partition("=")
        pattern = rf"\$\({name}\)" if variable else rf"^{re.escape(name)}:"
        if not re.search(pattern, rules, re.MULTILINE):
            raise ValueError(f"make has no {word}")


def check_install(arguments: list[str]) -> None:
    """Raises ValueError if the package has no such extra, or there are no such requirements."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = project["tool"]["setuptools"]["dynamic"]["optional-dependencies"]
    for word in arguments:
        named = re.fullmatch(r"\.\[(.+)\]", word)
        if named and not set(named[1].split(",")) <= extras.keys():
            raise ValueError(f"the package has no extra {named[1]}")
        if word.endswith(".txt") and not (ROOT / word).is_file():
            raise ValueError(f"no file {word}")


def check_command(words: list[str]) -> None:
    """Raises UserError or ValueError if a command is not as the programs take it."""
    program, *rest = words
    if rest in ([], ["launch.py", "--help"]):
        return
    if program.endswith("python") and rest[:1] == ["launch.py"]:
        check_launch(rest[1:])
    elif program == "transformer-jax":
        check_launch(rest)
    elif program.endswith("python") and rest[:1] == ["-m"] and rest[1].startswith(MODULES):
        check_module(rest[1], rest[2:])
    elif program == "make":
        check_make(rest)
    elif program == "pip" or rest[:2] == ["-m", "pip"]:
        check_install(rest)


def check_span(span: str) -> None:
    """Raises UserError or ValueError if a flag, key or path in the prose does not exist."""
    if span.startswith("--") and not span.startswith(FOREIGN):
        check_flags(span)
    elif (key := KEY.fullmatch(span)) and not FILES.search(span):
        check_key(key[1], key[2])
    elif PATH.fullmatch(span):
        check_path(span)


def check_flags(span: str) -> None:
    """Raises UserError or ValueError if no command has a flag, or the config not its key."""
    values = flags.FlagValues()
    define_flags(values)
    for word in shlex.split(span):
        name, equals, text = word.removeprefix("--").partition("=")
        if name.startswith("config."):
            check_key(name.removeprefix("config."), equals + text)
        elif name not in values and name not in MODULE_FLAGS:
            raise ValueError(f"no flag --{name}")
        elif name == "mode" and text not in MODES:
            raise ValueError(f"no mode {text}")


def check_key(key: str, value: str | None) -> None:
    """Raises UserError if a config has no such key, or it takes no such value."""
    config = base.get_config()
    text = (value or "").removeprefix("=").strip("'")
    if text and not PLACEHOLDER.search(text):
        override(config, key, text)
    elif (
        not hasattr(config.get(key.partition(".")[0]), key.rpartition(".")[2]) and key not in config
    ):
        raise ValueError(f"no key {key}")


def check_path(path: str) -> None:
    """Raises ValueError if no file of the repository has a path that ends so."""
    name = path.split(":")[0].rstrip("/")
    if not any(f"/{file}".endswith(f"/{name}") for file in TRACKED):
        raise ValueError(f"no file {name}")


def tracked() -> set[str]:
    """The files of the repository and their folders, from its root."""
    names = ("configs", "docs", *MODULES, "tests", "tools", "transformer")
    roots = [ROOT / name for name in names]
    files = {path for root in roots for path in root.rglob("*")} | {*ROOT.iterdir()}
    return {str(path.relative_to(ROOT)) for path in files}


def module_flags() -> set[str]:
    """The flags of the commands `python -m experiments...` and `python -m studies...`."""
    paths = [path for name in MODULES for path in (ROOT / name).rglob("*.py")]
    sources = (path.read_text("utf-8") for path in paths)
    return {
        flag for source in sources for flag in re.findall(r'add_argument\("--([\w-]+)"', source)
    }


TRACKED, MODULE_FLAGS = tracked(), module_flags()


def mistakes(page: str) -> dict[str, str]:
    """What is wrong with the code of a page, by its line."""
    found = {}
    for line in code_of(page):
        if any(name in line for name in WRITTEN_BY_READERS):
            continue
        try:
            for words in commands_of(line):
                if words and not INCOMPLETE.search(line):
                    check_command(words)
            if not PLACEHOLDER.search(line.partition("=")[0]):
                check_span(line)
        except (UserError, ValueError, flags.Error) as error:
            found[line] = str(error)
    return found


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_names_only_what_there_is(path):
    assert mistakes(path.read_text("utf-8")) == {}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("python launch.py --mode=tranlsate --workdir=runs/own", "tranlsate"),
        ("python launch.py --config=configs/quickstrat.py --workdir=a", "quickstrat.py"),
        ("python launch.py --config=configs/imdb.py --workdir=a \\\n--config.model.d=4", "model.d"),
        ("cat a.txt | python launch.py --workdir=a --mode=translate --hide_eos", "--hide_eos is"),
        ("make dmeo", "dmeo"),
        ("pip install '.[pears]'", "pears"),
        ("python -m studies.results --step=3", "--step"),
    ],
)  # fmt: skip
def test_a_wrong_command_would_be_seen(line, says):
    [told] = mistakes(f"```\n{line}\n```\n").values()
    assert says in told


@pytest.mark.parametrize(
    "span", ["--mode=tranlsate", "config.nmae", "decode.beam_size=four", "a/b.py"]
)
def test_a_wrong_name_would_be_seen(span):
    assert len(mistakes(f"See `{span}`.")) == 1
