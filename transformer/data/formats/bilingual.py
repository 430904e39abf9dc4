"""XLIFF files and translation memories (TMX), in which a unit has a source and a target.

Source: XLIFF 1.2 and 2.0, https://docs.oasis-open.org/xliff; TMX 1.4b,
https://www.gala-global.org/tmx-14b
"""

import re
from collections.abc import Iterator

from transformer.data.files.tmx import plain_tag, with_languages
from transformer.data.formats import markup
from transformer.data.formats.document import Document, Unit
from transformer.data.formats.markup import CODE, Element, Event
from transformer.errors import UserError

XLIFF = markup.roles(block="source seg-source target", inline="g pc mrk")
TMX = markup.roles(block="seg", inline="hi")
UNTRANSLATED = ("new", "needs-translation", "initial")  # states of a target


def read_xliff(data: bytes, name: str) -> Document:
    """Returns the units of an XLIFF 1.2 file, or the segments of an XLIFF 2.0 file.

    The places are in the targets. A target is a translation unless its state says that it is new.
    Units with `translate="no"` and proposals from a memory are left out.
    """
    text, encoding, mark = markup.decode_xml(data, name)

    def role(tag: Event, parent: Element) -> str:
        facts = markup.values(text, tag) if tag.name == "mrk" else {}
        is_fixed = facts.get("translate") == "no" or facts.get("mtype") == "protected"
        return CODE if is_fixed else XLIFF(tag, parent)

    pairs: dict[int, dict[str, Element]] = {}
    for block in markup.blocks(markup.events(text), role):
        pairs.setdefault(block.path[0].start, {})[block.tag.name] = block
    units = []
    for pair in filter(lambda pair: "source" in pair, pairs.values()):
        source, target = pair["source"], pair.get("target")
        path = [(tag.name, markup.values(text, tag)) for tag in source.path]
        switches = [facts["translate"] for _, facts in path if "translate" in facts]
        if switches[:1] == ["no"] or {"alt-trans", "matches"} & {tag for tag, _ in path}:
            continue
        opening = text[source.tag.start : source.tag.end].partition("source")[0] + "target>"
        facts = path[0][1] | (markup.values(text, target.tag) if target else {})
        state, approved = facts.get("state", ""), facts.get("approved")
        is_fuzzy = state.startswith("needs-") or facts.get("state-qualifier") == "fuzzy-match"
        ids = [each.get("id", "") for tag, each in path if tag in ("segment", "trans-unit", "unit")]
        is_fuzzy = approved == "no" or (is_fuzzy and approved != "yes")
        for unit in _units(text, source, target, pair.get("seg-source", source), opening):
            unit = unit._replace(key="/".join(filter(None, reversed(ids))), is_fuzzy=is_fuzzy)
            is_new = approved != "yes" and state in UNTRANSLATED
            units.append(unit._replace(target="" if is_new else unit.target))
    return markup.document(text, units, encoding, mark)


def _units(
    text: str, source: Element, target: Element | None, sibling: Element, opening: str
) -> Iterator[Unit]:
    """Yields the unit that writes the source's inline tags and new texts into the target, if any.

    A missing target is inserted after `sibling`, in the tags `opening`.
    """
    if target:
        opening = text[target.tag.start : target.tag.end]
        end = target.end if opening.endswith("/>") else text.index(">", target.end) + 1
        place = target.tag.start, end
    else:
        start, end = sibling.tag.start, text.index(">", sibling.end) + 1
        opening = text[text.rindex(">", 0, start) + 1 : start] + opening  # with its white space
        place = end, end
    closing = "".join(f"</{tag}>" for tag in reversed(re.findall(r"<([^\s/>]+)", opening)))
    old = next(iter(markup.units(text, target.parts if target else [])), Unit([], ()))
    for unit in markup.units(text, source.parts):
        (start, _), (_, end) = unit.places[0], unit.places[-1]
        before = re.sub(r"\s*/>$", ">", opening) + text[source.tag.end : start]
        after = text[end : source.end] + closing
        is_whole = target and old.places == ((target.tag.end, target.end),)
        current = old.pieces if is_whole and len(unit.pieces) == 1 else None
        unit = unit._replace(places=(place,), current=current, target=old.source)
        yield unit._replace(before=before, after=after)


def read_tmx(data: bytes, name: str, source_language: str, target_language: str) -> Document:
    """Returns the units of a translation memory that have a segment in the source language.

    The places are in the segments of the target language. The language `en` also matches `en-US` if
    a unit has no segment in `en`; case is ignored.
    """
    text, encoding, mark = markup.decode_xml(data, name)
    memory: dict[Event, dict[str, Element]] = {}
    for block in markup.blocks(markup.events(text), TMX):
        variant, unit = block.path[:2]
        facts = markup.values(text, variant)
        language = plain_tag(facts.get("xml:lang", facts.get("lang", "")))
        memory.setdefault(unit, {}).setdefault(language, block)
    units = []
    for tag, variants in memory.items():
        segments = with_languages(variants)
        if source := segments.get(plain_tag(source_language)):
            assert source.parent
            opening = f'<tuv xml:lang="{target_language}"><seg>'
            target = segments.get(plain_tag(target_language))
            key = markup.values(text, tag).get("tuid", "")
            new = _units(text, source, target, source.parent, opening)
            units += (unit._replace(key=key) for unit in new)
    if memory and not units:
        languages = {language for variants in memory.values() for language in variants}
        listed = ", ".join(sorted(languages))
        raise UserError(f"{name} has no text in {source_language!r}; its languages are {listed}")
    return markup.document(text, units, encoding, mark)
