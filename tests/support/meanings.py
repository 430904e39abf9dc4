"""Reads meanings out of English: "the old man" becomes a noun phrase, its parts a clause."""

from transformer.data.synthetic import clauses, lexicon

DETERMINERS = [
    *(lexicon.THE, lexicon.INDEFINITE, lexicon.THIS, lexicon.EVERY),
    *(*lexicon.NUMERALS, *lexicon.POSSESSIVES, *lexicon.GENITIVES.values()),
]
GROUPS = ("present", "past", "future", "frequency", "aspect")
ADVERBIALS = {row[0]: row for group in GROUPS for row in lexicon.FIXED[group]}
PREPOSITIONS = {row[0]: row for rows in lexicon.PREPOSITIONS.values() for row in rows}
PREPOSITIONS["onto"] = lexicon.PREPOSITIONS["put"][0]


def phrase(text, case="nominative", owner=None, of=False, negation=None):
    """Reads a pronoun, a name, or determiner, adjectives and noun: "the old man"."""
    for pronoun in (*lexicon.PRONOUNS, lexicon.EXPLETIVE):
        if text == (pronoun.subject if case == "nominative" else pronoun.object):
            read = clauses.fixed(text, getattr(pronoun, case))
            return read._replace(person=pronoun.person, definite=True, pronoun=True)
    if text in lexicon.NAMES:
        return clauses.fixed(text, text)._replace(definite=True)
    nouns = [(form, n) for n in lexicon.NOUNS for form in (n.singular, n.plural) if form]
    form, noun = max((x for x in nouns if text.endswith(x[0])), key=lambda x: len(x[0]))
    words = ["a" if word == "an" else word for word in text.removesuffix(form).split()]
    plural = form == noun.plural
    number = "plural" if plural else "singular"
    determiner = next((d for d in DETERMINERS if getattr(d, number) in words), lexicon.BARE)
    adjectives = [a for word in words for a in lexicon.ADJECTIVES if a.english == word]
    return clauses.noun_phrase(noun, plural, determiner, adjectives, case, owner, of, negation)


def place(text):
    """Reads a preposition and what it governs."""
    name = max((p for p in PREPOSITIONS if text.startswith(p + " ")), key=len)
    english, german, case = PREPOSITIONS[name]
    inner = phrase(text.removeprefix(name + " "), case)
    return clauses.joined(clauses.fixed(english, german, "0,0"), inner)


def clause(subject, verb, *objects, places=(), time=None, middle=None, negated=False, **fields):
    """Reads the parts of a clause; a verb is "call" or "pick up", an object has its case."""
    verbs = [v for v in lexicon.VERBS if f"{v.base} {v.particle}".strip() == verb]
    negation = clauses.Piece() if negated else None
    return clauses.Clause(
        phrase(subject) if isinstance(subject, str) else subject,
        verbs[0] if verb else None,
        negation=negation,
        objects=[phrase(text, case, negation=negation) for text, case in objects],
        places=[place(text) if isinstance(text, str) else text for text in places],
        time=[clauses.fixed(*ADVERBIALS[time])] if time else [],
        middle=[clauses.fixed(*ADVERBIALS[middle])] if middle else [],
        **fields,
    )
