"""Subtitles: SubRip (.srt) and WebVTT (.vtt); and cues of two languages aligned by time."""

import html
import itertools
import re

import numpy as np

from transformer.data.formats.document import Document, TextDocument, Unit, damaged, decode
from transformer.data.formats.tags import CLOSE, EMPTY, OPEN, Tag
from transformer.errors import UserError

TIME = r"((?:\d+:)?\d+:\d+(?:[,.]\d+)?)"  # players accept a comma and a point in both formats
TIMES = re.compile(rf"\s*{TIME}\s*-->\s*{TIME}(?:\s|$)")
ARROW = r"(?=[^\n]*\d:\d)[^\n]*-->[^\n]*\n?"  # a line of times, perhaps malformed
# In SRT, a text ends before the number of the next cue, and in WebVTT at a blank line.
SRT_CUE = re.compile(rf"(?ms)^({ARROW})\s*(.*?)\s*(?=^(?:[ \t]*\d+\s*^)?{ARROW}|\Z)")
VTT_CUE = re.compile(rf"(?m)^({ARROW})((?:(?!{ARROW})[^\r\n]+(?:\r?\n(?=[^\r\n])(?!{ARROW}))?)*)")
# Tags of HTML, time stamps of WebVTT, styles of SubStation Alpha; `a < b` is text.
CODE = re.compile(r"</?[a-zA-Z][^<>]*>|<[\d:.]*>|\{\\[^{}]*\}")


def read_vtt(data: bytes, name: str) -> TextDocument:
    """Returns the cues of a WebVTT file as units. Source: https://www.w3.org/TR/webvtt1/."""
    return read_srt(data, name, is_vtt=True)


def read_srt(data: bytes, name: str, is_vtt: bool = False) -> TextDocument:
    """Returns the cues of a SubRip file as units. Source: https://wiki.videolan.org/SubRip/."""
    text, encoding, mark = decode(data, name)
    cues = [*(VTT_CUE if is_vtt else SRT_CUE).finditer(text)]
    unescape = html.unescape if is_vtt else str
    if not (re.match(r"WEBVTT(\s|\Z)", text) if is_vtt else cues or not text.strip()):
        sign = "first line WEBVTT" if is_vtt else "times such as 00:00:01,000 --> 00:00:02,500"
        raise UserError(f"{name} has no {sign}: add it, or rename the file")
    units = []
    for cue in cues:
        if not (times := TIMES.match(cue[1])):
            raise damaged(name, text, cue.start(), "has no times such as 00:01.000 --> 00:02.500")
        start, end = cue.span(2)
        edges = [start, *(n for code in CODE.finditer(text, start, end) for n in code.span()), end]
        pieces = []
        for number, place in enumerate(itertools.pairwise(edges)):
            raw = text[slice(*place)]
            kind = CLOSE if raw[:2] == "</" else OPEN if raw[1:2].isalpha() else EMPTY
            pieces.append(Tag(kind, place) if number % 2 else unescape(raw.replace("\r\n", "\n")))
        pieces = [piece for piece in pieces if piece]
        unit = Unit(pieces, ((start, end),), pieces)
        if unit.source.strip():
            units.append(unit._replace(times=(_seconds(times[1]), _seconds(times[2]))))

    def escape(new: str) -> str:  # an arrow would be a line of times, and a blank line ends a cue
        new = html.escape(new, quote=False) if is_vtt else new.replace("-->", "→")
        return re.sub(r"\n\s*\n", "\n", new).replace("\n", "\r\n" if "\r\n" in text else "\n")

    return TextDocument(text, units, escape, encoding, mark)


def _seconds(time: str) -> float:
    parts = reversed(time.replace(",", ".").split(":"))
    return round(sum(float(part) * 60**power for power, part in enumerate(parts)), 3)


def aligned(first: Document, second: Document) -> tuple[list[tuple[str, str]], int]:
    """Returns pairs of texts with the same times, and the number of cues without a partner.

    Two cues match if they overlap for more than half of the shorter one. All cues that match the
    same cue are joined, since translators divide a sentence into cues differently.
    """
    from scipy import sparse

    sides = [[unit for unit in document.units if unit.times] for document in (first, second)]
    (start, end), (others_start, others_end) = (
        np.array([unit.times for unit in side]).reshape(-1, 2).T for side in sides
    )
    overlaps = np.minimum.outer(end, others_end) - np.maximum.outer(start, others_start)
    matches = overlaps > 0.5 * np.minimum.outer(end - start, others_end - others_start)
    graph = sparse.bmat([[None, matches], [matches.T, None]])
    groups: dict[int, tuple[list[str], list[str]]] = {}
    for index, group in enumerate(sparse.csgraph.connected_components(graph)[1]):
        text = " ".join((sides[0] + sides[1])[index].source.split())
        groups.setdefault(int(group), ([], []))[index >= len(sides[0])].append(text)
    pairs = [(" ".join(a), " ".join(b)) for a, b in groups.values() if a and b]
    return pairs, sum(len(a + b) for a, b in groups.values() if not (a and b))
