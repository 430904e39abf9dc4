"""The test sets that sacreBLEU knows by name, such as wmt14/full; it fetches and keeps them."""

import difflib
import socket
from pathlib import Path

from transformer.errors import UserError, one_line, shorten

PREFIX = "sacrebleu:"
TIMEOUT = 60.0  # seconds without an answer


def fetch_named_set(given: str) -> tuple[Path, list[Path]]:
    """Returns the file of the sources and those of the references of a test set.

    They lie in sacreBLEU's own cache, the folder that the environment's SACREBLEU names, by default
    `~/.sacrebleu`; a set that is not there is downloaded.

    Args:
      given: `sacrebleu:<name>,<languages>`, such as sacrebleu:wmt14/full,en-de.

    Raises:
      UserError: sacreBLEU has no such set, or cannot fetch it.
    """
    from sacrebleu.dataset import DATASETS  # takes a tenth of a second

    name, comma, languages = given.removeprefix(PREFIX).rpartition(",")
    if not comma:
        raise UserError(
            f"--input={given} names no languages: write --input={PREFIX}wmt14/full,en-de"
        )
    if name not in DATASETS:
        near = difflib.get_close_matches(name, DATASETS, 1, 0.3)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UserError(
            f"--input={given}: sacreBLEU has no test set {name!r}: {hint}`sacrebleu --list` shows "
            "all"
        )
    dataset = DATASETS[name]
    if languages not in dataset.langpairs:
        known = shorten(", ".join(dataset.langpairs))
        raise UserError(f"--input={given}: the languages of {name} are {known}: choose among them")
    timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)
    try:
        source = dataset.get_source_file(languages)
        references = dataset.get_reference_files(languages)
    except (Exception, SystemExit) as error:  # which sacreBLEU ends with where a file is damaged
        reason = one_line(str(error)) or type(error).__name__
        raise UserError(
            f"--input={given}: sacreBLEU cannot fetch it ({shorten(reason)}): write its files on a "
            f"machine with a network, with `sacrebleu -t {name} -l {languages} --echo src` and "
            "`--echo ref`, and name them with --input=source.txt --references=reference.txt"
        ) from None
    finally:
        socket.setdefaulttimeout(timeout)
    return Path(source), list(map(Path, references))
