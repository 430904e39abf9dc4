"""Reads meanings out of English: "the old man" becomes a noun phrase, its parts a clause."""

import itertools

from transformer.data.synthetic import clauses, lexicon
from transformer.data.synthetic.clauses import (
    Clause,
    NounPhrase,
    Phrase,
    adverbial_phrase,
    noun_in_case,
    prepositional_phrase,
)

KEYS = itertools.count(clauses.STEP, clauses.STEP)
DETERMINERS = [
    *(lexicon.THE, lexicon.INDEFINITE, lexicon.THIS, lexicon.EVERY),
    *(*lexicon.NUMERALS, *lexicon.POSSESSIVES),
]
ADVERBIALS = {
    " ".join(adverbial.english): adverbial
    for group in ("PRESENT_TIMES", "PAST_TIMES", "FUTURE_TIMES", "FREQUENCIES", "ASPECTS")
    for adverbial in getattr(lexicon, group)
}
PREPOSITIONS = {
    **{p.english: p for p in (*lexicon.LOCATIVE, *lexicon.DIRECTIONAL, *lexicon.ACCOMPANYING)},
    **{"under": lexicon.UNDER, "on": lexicon.ON, "onto": lexicon.ONTO},
    **{v.preposition.english: v.preposition for v in lexicon.VERBS if v.preposition},
}


def noun_phrase(text, **fields):
    """Reads "the old man": determiner, adjectives, noun."""
    words = text.split()
    plural = any(noun.plural and text.endswith(noun.plural) for noun in lexicon.NOUNS)
    form = "plural" if plural else "singular"
    noun = max(
        (n for n in lexicon.NOUNS if getattr(n, form) and text.endswith(getattr(n, form))),
        key=lambda n: len(getattr(n, form)),
    )
    words = words[: len(words) - len(getattr(noun, form).split())]
    determiner = lexicon.INDEFINITE if plural else lexicon.BARE
    if words and (found := [d for d in DETERMINERS if getattr(d, form) == words[0]]):
        determiner, words = found[0], words[1:]
    adjectives = tuple(a for word in words for a in lexicon.ADJECTIVES if a.english == word)
    gender = "p" if plural else noun.gender
    return NounPhrase(next(KEYS), noun, gender, determiner, adjectives, **fields)


def phrase(text, case="nominative", negation=None, **fields):
    """Reads a pronoun, a name or a noun phrase."""
    key = (next(KEYS),)
    for pronoun in lexicon.PRONOUNS:
        english = pronoun.subject if case == "nominative" else pronoun.object
        if text == english:
            german = getattr(pronoun, case)
            return Phrase([(text, key)], [(german, key)], pronoun.person, True, True)
    if text == "it":
        return Phrase([("it", key)], [("es", key)], "3s", True, True)
    if text in lexicon.NAMES:
        return Phrase([(text, key)], [(text, key)], definite=True)
    return noun_in_case(noun_phrase(text, **fields), case, negation)


def place(text):
    """Reads a preposition and what it governs."""
    name = max((p for p in PREPOSITIONS if text.startswith(p + " ")), key=len)
    preposition = PREPOSITIONS[name]
    inner = phrase(text.removeprefix(name + " "), preposition.case)
    return prepositional_phrase(next(KEYS), preposition, inner)


def clause(subject, verb, *objects, places=(), time=None, middle=None, negated=False, **fields):
    """Reads the parts of a clause; a verb is "call" or "pick up", an object has its case."""
    key = next(KEYS)
    verbs = [v for v in lexicon.VERBS if f"{v.base} {v.particle}".strip() == verb]
    negation = key + clauses.NEGATION if negated else None
    things = [phrase(text, case, negation) for text, case in objects]
    return Clause(
        key,
        phrase(subject) if isinstance(subject, str) else subject,
        verbs[0] if verb else None,
        negated=negated,
        objects=things,
        places=[place(text) if isinstance(text, str) else text for text in places],
        time=adverbial_phrase(next(KEYS), ADVERBIALS[time]) if time else None,
        middle=adverbial_phrase(next(KEYS), ADVERBIALS[middle]) if middle else None,
        **fields,
    )


def text(words):
    """Words without their keys."""
    return " ".join(word for word, _ in words)
