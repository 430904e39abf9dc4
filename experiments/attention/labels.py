"""Tokens as text to read."""

import unicodedata

MAX_LABEL_LENGTH = 20  # characters


def visible(token: str, covered: frozenset[str]) -> str:
    """The token as a label: every character shows, and none is drawn as an empty box.

    sentencepiece's word mark `▁` stays, so a label is the vocabulary's piece, letter by letter.

    Args:
      token: any string.
      covered: the characters that the fonts in use can draw.

    Returns:
      `∅` for an empty token, `␣` for a blank, `⟨4E2D⟩`, the code point, for what cannot be drawn
      or seen; at most `MAX_LABEL_LENGTH` characters, cut with `…`.
    """
    shown = []
    for character in token:
        if character == " ":
            shown.append("␣")
        elif character in covered and (character.isprintable() or character in "\u200c\u200d"):
            shown.append(character)
        else:
            shown.append(f"⟨{ord(character):04X}⟩")
    if len("".join(shown)) > MAX_LABEL_LENGTH:
        while len("".join(shown)) >= MAX_LABEL_LENGTH:
            shown.pop()  # a code point is whole
        shown.append("…")
    text = "".join(shown) or "∅"
    # A combining mark at the front would sit on whatever is drawn before it.
    return "◌" + text if unicodedata.combining(text[0]) else text
