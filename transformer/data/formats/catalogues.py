"""Catalogues of a program's messages: gettext (.po), i18next (.json) and Java (.properties)."""

import functools
import json.scanner
import re
from collections.abc import Iterator
from typing import Any

from transformer.data.formats.document import TextDocument, Unit, damaged, decode
from transformer.errors import UserError

STRING = r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*'
ENTRY = re.compile(rf"""(?mx) ^[ \t]*(?:msgctxt\s*(?P<context>{STRING})\s*)?
    msgid\s*(?P<id>{STRING})\s*(?:msgid_plural\s*(?P<plural>{STRING})\s*)?
    (?:msgstr(?:\[\d+\])?\s*{STRING}\s*)+""")
MSGSTR = re.compile(rf"^[ \t]*msgstr(\[\d+\])?\s*({STRING})", re.M)
# The former msgid of a fuzzy entry, and the flag `fuzzy` with its comma or line.
OUTDATED = re.compile(r"(?m)^(?:#\|.*\n|#, *fuzzy\s*?\n|#,.*?(fuzzy, *|, *fuzzy\b).*\n)")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
ESCAPED = str.maketrans({char: f"\\{letter}" for letter, char in ESCAPES.items()} | {"\\": r"\\"})
PROPERTY = re.compile(r"""(?mx) ^[ \t\f]*+(?![#!\s]) (?P<key>(?:[^\\\s=:]|\\(?:\r\n|[\s\S]))*)
    [ \t\f]*(?:[=:][ \t\f]*)? (?P<value>(?:[^\\\r\n]|\\(?:\r\n|[\s\S]))*)""")
PROPERTY_ESCAPE = re.compile(r"((?:\\u[0-9a-fA-F]{4})+)|\\(?:\r?\n[ \t\f]*|([\s\S]))")


def read_po(data: bytes, name: str) -> TextDocument:
    r"""Returns each msgstr of a PO file, except of obsolete entries, as a unit; a plural form, too.

    Keys are as in MO files, with the number of a form, as in 'context\4%d file[1]'. If a fuzzy
    entry changes, the flag and the previous msgid are removed.
    Source: https://www.gnu.org/software/gettext/manual/html_node/PO-Files.html
    """
    text, encoding, mark = decode(data, name, r"charset=(?!CHARSET)([\w.:-]+)")
    units, last = list[Unit](), 0
    others = ENTRY.sub(lambda entry: re.sub(r"\S", " ", entry[0]), text)
    if stray := re.search(r"(?m)^[ \t]*+[^#\s]", others):
        raise damaged(name, text, stray.start(), "is not part of an entry with msgid and msgstr")
    for entry in ENTRY.finditer(text):
        start = max(last, text.rfind("\n#~", last, entry.start()) + 1)  # after obsolete entries
        comments, last = [*OUTDATED.finditer(text, start, entry.start())], entry.end()
        is_fuzzy = any(comment[0].startswith("#,") for comment in comments)
        outdated = [comment.span(comment.lastindex or 0) for comment in comments]
        context, msgid, plural = (_unquote(entry[n]) for n in ("context", "id", "plural"))
        for form in MSGSTR.finditer(text, entry.start(), last) if msgid.strip() else ():
            source = plural if form[1] not in (None, "[0]") else msgid
            target, key = _unquote(form[2]), f"{context}\4{msgid}{form[1] or ''}"
            unit = Unit([source], (form.span(2), *outdated), [target], target=target)
            units.append(unit._replace(key=key, is_fuzzy=is_fuzzy))

    def escape(new: str) -> str:  # as in gettext, each line of several is a string
        lines = [line.translate(ESCAPED) for line in re.findall(r".*\n|.+", new)]
        lines = [line.replace('"', r"\"") for line in (lines if len(lines) == 1 else ["", *lines])]
        return ("\r\n" if "\r\n" in text else "\n").join(f'"{line}"' for line in lines)

    return TextDocument(text, units, escape, encoding, mark)


def _unquote(strings: str | None) -> str:
    text = "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', strings or ""))
    return re.sub(r"\\(.)", lambda match: ESCAPES.get(match[1], match[1]), text)


def read_json(data: bytes, name: str) -> TextDocument:
    """Returns each string value of a JSON file as a unit; its key is a dotted path."""
    text, encoding, mark = decode(data, name)
    decoder: Any = json.JSONDecoder()
    decoder.parse_string = _parse_string  # not called for the keys of objects
    decoder.scan_once = json.scanner.__dict__["py_make_scanner"](decoder)  # C ignores parse_string
    try:
        units = [*_strings(decoder.decode(text), "")]
    except json.JSONDecodeError as error:
        raise damaged(name, text, error.pos, f"is not JSON ({error.msg})") from None
    escape = functools.partial(json.dumps, ensure_ascii=text.isascii() and r"\u" in text)
    return TextDocument(text, units, escape, encoding, mark)


def _parse_string(text: str, start: int, strict: bool) -> tuple[Unit, int]:
    value, end = json.decoder.__dict__["scanstring"](text, start, strict)
    return Unit([value], ((start - 1, end),), [value]), end


def _strings(value: Any, key: str) -> Iterator[Unit]:
    if isinstance(value, dict | list):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _strings(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, Unit) and value.source.strip():
        yield value._replace(key=key)


def read_properties(data: bytes, name: str) -> TextDocument:
    r"""Returns each value of a Java properties file, in UTF-8 or else Latin-1, as a unit.

    New texts of a file in ASCII, which readers of both encodings may open, have \u escapes.
    Source: https://docs.oracle.com/en/java/javase/21/docs/api/java.base/java/util/Properties.html
    """
    try:
        text, encoding, mark = decode(data, name)
    except UserError:
        text, encoding, mark = data.decode("latin-1"), "latin-1", b""
    units = []
    for match in PROPERTY.finditer(text):
        key, value = (PROPERTY_ESCAPE.sub(_character, match[n]) for n in ("key", "value"))
        if value.strip():
            units.append(Unit([value], (match.span("value"),), [value], key=key))
    last = "\x7f" if text.isascii() else "\xff" if encoding == "latin-1" else "\U0010ffff"

    def escape(new: str) -> str:
        new = re.sub(r"\A([ =:])", r"\\\1", new.translate(ESCAPED))
        return re.sub(f"[^\\0-{last}]+", lambda match: json.dumps(match[0])[1:-1], new)

    return TextDocument(text, units, escape, encoding, mark)


def _character(match: re.Match[str]) -> str:
    return json.loads(f'"{match[1]}"') if match[1] else ESCAPES.get(match[2], match[2] or "")
