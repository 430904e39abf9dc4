"""XLIFF files and translation memories (TMX), in which a unit has a source and a target.

Source: XLIFF 1.2 and 2.0, https://docs.oasis-open.org/xliff; TMX 1.4b,
https://www.gala-global.org/tmx-14b
"""

import re

from transformer.data.formats import markup
from transformer.data.formats.document import Document, Unit
from transformer.data.formats.markup import CODE, Element, Event
from transformer.errors import UserError

XLIFF = markup.roles({markup.BLOCK: "source target", markup.INLINE: "g pc mrk"})
TMX = markup.roles({markup.BLOCK: "seg", markup.INLINE: "hi"})
UNTRANSLATED = ("new", "needs-translation", "initial")  # states of a target


def read_xliff(data: bytes, name: str) -> Document:
    """Returns the units of an XLIFF 1.2 file, or the segments of an XLIFF 2.0 file.

    The places are in the targets. A target is a translation unless its state says that it is new.
    Units with `translate="no"` and proposals from a memory are left out.
    """
    text, encoding, mark = markup.decode_xml(data, name)

    def role(tag: Event, _: Element) -> int:
        facts = markup.values(text, tag) if tag.name == "mrk" else {}
        is_fixed = facts.get("translate") == "no" or facts.get("mtype") == "protected"
        return CODE if is_fixed else XLIFF.get(tag.name, CODE)

    pairs: dict[int, dict[str, Element]] = {}
    for block in markup.blocks(markup.events(text), role):
        if block.parent:
            pairs.setdefault(block.parent.tag.start, {})[block.tag.name] = block
    units = []
    for pair in filter(lambda pair: "source" in pair, pairs.values()):
        source, target = pair["source"], pair.get("target")
        path = [(tag.name, markup.values(text, tag)) for tag in source.path]
        switches = [facts["translate"] for _, facts in path if "translate" in facts]
        if switches[:1] == ["no"] or {"alt-trans", "matches"} & {tag for tag, _ in path}:
            continue
        prefix = text[source.tag.start : source.tag.end].partition("source")[0]
        tags = f"{_indent(text, source)}{prefix}target>", f"</{prefix[1:]}target>"
        unit = _unit(text, source, target, text.index(">", source.end) + 1, tags)
        facts = path[0][1] | (markup.values(text, target.tag) if target else {})
        state, approved = facts.get("state", ""), facts.get("approved")
        is_fuzzy = state.startswith("needs-") or facts.get("state-qualifier") == "fuzzy-match"
        ids = [each.get("id", "") for tag, each in path if tag in ("segment", "trans-unit", "unit")]
        unit = unit._replace(key="/".join(filter(None, reversed(ids))))
        if approved != "yes" and state in UNTRANSLATED:
            unit = unit._replace(target="")
        units.append(unit._replace(is_fuzzy=approved == "no" or (is_fuzzy and approved != "yes")))
    return markup.document(text, [unit for unit in units if unit.segments], encoding, mark)


def _indent(text: str, element: Element) -> str:
    """Returns the white space before an element."""
    return text[text.rindex(">", 0, element.tag.start) + 1 : element.tag.start]


def _unit(
    text: str, source: Element, target: Element | None, at: int, tags: tuple[str, str]
) -> Unit:
    """Returns a unit that writes the source's inline tags and new texts into the target.

    A missing target is inserted at the offset `at`, between `tags`.
    """
    place, (opening, closing), translation = (at, at), tags, []
    if target is not None:
        place, opening, closing = (target.tag.end, target.end), "", ""
        translation = markup.segments(text, target.parts)
        tag = text[target.tag.start : target.tag.end]
        if tag.endswith("/>"):
            place = target.tag.start, target.tag.end
            opening, closing = tag[:-2].rstrip() + ">", re.sub(r"<([^\s/>]+).*", r"</\1>", tag)
    segments, last, first = [], source.tag.end, place
    for segment in markup.segments(text, source.parts):
        before = text[last : segment.places[0][0]]
        last = segment.places[-1][1]
        segments.append(segment._replace(places=(place,), current=None, before=before))
        place = place[1], place[1]
    if segments:
        segments[0] = segments[0]._replace(before=opening + segments[0].before)
        segments[-1] = segments[-1]._replace(after=text[last : source.end] + closing)
    if len(segments) == 1 and [each.places for each in translation] == [(first,)]:
        segments[0] = segments[0]._replace(current=translation[0].text)
    return Unit(segments, Unit(translation).source)


def read_tmx(data: bytes, name: str, source_language: str, target_language: str) -> Document:
    """Returns the units of a translation memory that have a segment in the source language.

    The places are in the segments of the target language. The language `en` also matches `en-US` if
    a unit has no segment in `en`; case is ignored.
    """
    text, encoding, mark = markup.decode_xml(data, name)
    memory: dict[int, tuple[Event, dict[str, Element]]] = {}
    for block in markup.blocks(markup.events(text), lambda tag, _: TMX.get(tag.name, CODE)):
        if block.tag.name == "seg":
            variant, unit = block.path[:2]
            facts = markup.values(text, variant)
            language = facts.get("xml:lang", facts.get("lang", ""))
            memory.setdefault(unit.start, (unit, {}))[1].setdefault(_plain(language), block)
    units = []
    for tag, variants in memory.values():
        if source := _variant(variants, source_language):
            at = text.index(">", text.index("</", text.index(">", source.end))) + 1  # of </tuv>
            assert source.parent
            opening = f'{_indent(text, source.parent)}<tuv xml:lang="{target_language}"><seg>'
            target = _variant(variants, target_language)
            unit = _unit(text, source, target, at, (opening, "</seg></tuv>"))
            units.append(unit._replace(key=markup.values(text, tag).get("tuid", "")))
    languages = {language for _, variants in memory.values() for language in variants}
    if memory and not units:
        listed = ", ".join(sorted(languages))
        raise UserError(f"{name} has no text in {source_language!r}; its languages are {listed}")
    return markup.document(text, [unit for unit in units if unit.segments], encoding, mark)


def _plain(language: str) -> str:
    return language.lower().replace("_", "-")


def _variant(variants: dict[str, Element], language: str) -> Element | None:
    """Returns the segment in a language, or in a region of it."""
    regional = {each.partition("-")[0]: element for each, element in variants.items()}
    return (regional | variants).get(_plain(language))
