"""Words, phrases and sentences of the synthetic English-German corpus.

The words are in `lexicon.txt`, one row per lemma, and are inflected by the classes below. Semantic
kinds ("person", "food", ...) keep sentences plausible: a verb lists the kinds of its subject and
object, and an adjective lists the kinds of its nouns. Functions for phrases and clauses implement
agreement inside the noun phrase, verb forms and positions, and the order of all other phrases.
They are deterministic. Words that share a piece of meaning are linked; see `grammar`.

Source: M. Durrell, "Hammer's German Grammar and Usage", the chapters on the word classes,
adjectives (endings), and word order (the verbal bracket, objects and adverbials in the central
section, place of nicht).
"""

import functools
import re
from collections import namedtuple
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Union

from transformer.data.pairs import Pair
from transformer.data.synthetic import read_tables

CASES = ("nominative", "accusative", "dative", "genitive")
GENDERS = "mfnp"  # masculine, feminine, neuter; the plural has one declension for all three
PERSONS = ("1s", "2s", "3s", "p")  # "p": we and they, whose verb forms are the same
GROUPS = {"being": "person,animal", "goods": "thing,clothing,vehicle,device,surface"}  # kind groups
CELLS = [(case, gender) for case in CASES for gender in GENDERS]
Kinds = tuple[str, ...]

# Adjectives: `german` follows a verb; `stem` takes endings. Modals: `present` is keyed by person.
Adjective = namedtuple("Adjective", "english german stem kinds")
Pronoun = namedtuple("Pronoun", "subject object person nominative accusative dative")
Modal = namedtuple("Modal", "english present")


def english_form(word: str, suffix: str) -> str:
    """Adds the English suffix "s" or "ed" to `word`, following the spelling rules."""
    form = re.sub("([^aeiou])y(?=(s|ed)$)", r"\1ie", word + suffix)
    return re.sub("e+ed$", "ed", re.sub("(s|sh|ch|x|o)s$", r"\1es", form))


def _kinds_of_words(cell: str) -> Kinds:
    return tuple(",".join(GROUPS.get(kind, kind) for kind in cell.split(",")).split(","))


def _forms_by_person(forms: list[str]) -> dict[str, str]:
    return dict(zip(PERSONS, forms, strict=True))


def _group_nouns(rows: list[list[str]]) -> dict[str, list[list[str]]]:
    return {name: [cells for group, *cells in rows if group == name] for name, *_ in rows}


class Noun:
    """A noun; `forms` maps case and gender to German forms. A mass noun has no `plural`."""

    def __init__(self, *row: str):
        english, german, self.gender, plural, suffix, kinds = row
        self.singular, _, many = english.partition("/")
        self.plural = (many or english_form(self.singular, "s")) if plural else ""
        self.kinds = _kinds_of_words(kinds)
        # A genitive in -n marks a weak noun, which has this form in all cases but the nominative.
        oblique = german + suffix if suffix.endswith("n") else german
        dative = plural if plural.endswith(("n", "s")) else plural + "n"
        forms = german, oblique, oblique, german + suffix, plural, plural, dative, plural
        cells = [(case, gender) for gender in (self.gender, "p") for case in CASES]
        self.forms = dict(zip(cells, forms, strict=True))


class Determiner:
    """A determiner; after a form without an ending (`stem`), adjectives have strong endings."""

    def __init__(self, singular: str, plural: str, stem: str, endings: str, definite: str):
        self.singular, self.plural, self.stem = singular, plural, stem
        self.definite = bool(definite)
        self.forms = {cell: stem + ending for cell, ending in ENDINGS[endings].items()}


class Verb:
    """A verb; `frame` is the name of the verb's complement pattern (see `grammar`).

    `present` maps persons to German finite forms without the separable `prefix`. `particle` follows
    the English verb, or a pronoun object if `splits` is true. `auxiliary` has the forms of the
    perfect auxiliary. A verb without an auxiliary has only the present tense.
    """

    def __init__(self, *row: str):
        self.frame, english, german, third, self.participle, auxiliary, *kinds = row
        self.subjects, self.objects = map(_kinds_of_words, kinds)
        head, _, self.particle = english.replace("+", " ").partition(" ")
        self.splits = "+" in english
        self.base, *irregular = head.split("/")
        regular = [english_form(self.base, suffix) for suffix in ("ed", "ed", "s")]
        self.past, self.past_participle, self.third = irregular + regular[len(irregular) :]
        self.prefix, _, stem = german.rpartition("|")
        self.infinitive = self.prefix + stem
        # The second person has the vowel of the third; after a sibilant, both forms are the same.
        second = third if third[:-1].endswith(("s", "ß", "z")) else third[:-1] + "st"
        singular = third.split("/") if "/" in third else [stem[:-2] + "e", second, third]
        self.present = _forms_by_person([*singular, stem])
        self.auxiliary = AUXILIARIES.get(auxiliary)


TABLES = read_tables(Path(__file__).with_name("lexicon.txt"))
NAMES = ["Anna", "Peter", "Maria", "Paul", "Laura", "Martin", "Julia", "David", "Sarah", "Daniel"]
ENDINGS = {
    name: dict(zip(CELLS, " ".join(columns).replace("-", "").split(" "), strict=True))
    for name, *columns in TABLES["endings"]
}
AUXILIARIES = {name: _forms_by_person(forms) for name, *forms in TABLES["auxiliaries"]}
CONTRACTIONS = dict(TABLES["contractions"])
FIXED = _group_nouns(TABLES["fixed"])  # English, German, links
PREPOSITIONS = _group_nouns(TABLES["prepositions"])  # English, German, case
NOUNS = [Noun(*row) for row in TABLES["nouns"]]
VERBS = [Verb(*row) for row in TABLES["verbs"]]
THAT_VERBS = [verb for verb in VERBS if verb.frame == "that"]
WEATHER_VERBS = [verb for verb in VERBS if verb.frame == "weather"]
OTHER_VERBS = [verb for verb in VERBS if verb.frame not in ("that", "weather")]
ADJECTIVES = [
    Adjective(en, de, at or de, _kinds_of_words(of)) for en, de, at, of in TABLES["adjectives"]
]
ADJECTIVES_OF = {k: [a for a in ADJECTIVES if k in a.kinds] for a in ADJECTIVES for k in a.kinds}
*MODALS, FUTURE = (Modal(english, _forms_by_person(forms)) for english, *forms in TABLES["modals"])
*PRONOUNS, EXPLETIVE = (Pronoun(*row) for row in TABLES["pronouns"])
THE, THIS, EVERY, INDEFINITE, BARE, NO, NO_MASS, TWO, THREE, *POSSESSIVES = (
    Determiner(*row) for row in TABLES["determiners"]
)
NUMERALS = [TWO, THREE]
GENITIVES = {n: Determiner(f"{n}'s", f"{n}'s", f"{n}s", "none", "definite") for n in NAMES}


@functools.cache
def nouns_of(kinds: Kinds) -> list[Noun]:
    """Returns the nouns that belong to any of the kinds."""
    return [noun for noun in NOUNS if not set(kinds).isdisjoint(noun.kinds)]


# -- phrases and clauses

Piece = object  # a piece of meaning
Article = namedtuple("Article", "determiner noun case gender piece")  # the piece of a determiner
MARKS = {"'s", ",", ".", "?"}
Word = tuple[str, tuple[Piece, ...]]  # text, and the pieces of meaning that it expresses
Part = Union["Phrase", "Clause"]  # of a sentence


class Phrase(NamedTuple):
    """A constituent or a sentence in both languages."""

    english: list[Word]
    german: list[Word]
    person: str = "3s"
    definite: bool = False
    pronoun: bool = False
    negatable: bool = True  # no negation follows "every"


class Clause(NamedTuple):
    """The meaning of a clause, and its form; `spell` puts it into words."""

    subject: Phrase
    verb: Verb | None  # None: the copula
    tense: str = "present"  # or "perfect", "past", "modal", "future"
    modal: Modal | None = None
    negation: Piece | None = None  # the piece of meaning of "not"
    objects: Sequence[Phrase] = ()
    places: Sequence[Phrase] = ()
    time: Sequence[Phrase] = ()  # at most one
    middle: Sequence[Phrase] = ()  # at most one, a single adverb such as "often"
    fronted: bool = False
    order: str = "second"  # place of the German finite verb; or "first", "final"
    question: bool = False


def _by_word(text: str, *pieces: Piece) -> list[Word]:
    return [(word, pieces) for word in text.split()]


def joined(*phrases: Phrase) -> Phrase:
    """Concatenates several phrases into one phrase."""
    english = [word for phrase in phrases for word in phrase.english]
    return Phrase(english, [word for phrase in phrases for word in phrase.german])


def fixed(english: str, german: str, links: str = "") -> Phrase:
    """Returns a fixed phrase; `links` lists each English word's German positions if they differ."""
    words, pieces = english.split(), [Piece() for _ in german.split()]
    places = zip(words, links.split(",") if links else "0123", strict=False)
    return Phrase(
        [(word, tuple([pieces[int(i)] for i in positions])) for word, positions in places],
        [(word, (piece,)) for word, piece in zip(german.split(), pieces, strict=True)],
    )


def noun_phrase(
    noun: Noun,
    plural: bool,
    determiner: Determiner,
    adjectives: Sequence[Adjective],
    case: str,
    owner: Phrase | None = None,
    of: bool = False,
    negation: Piece | None = None,
) -> Phrase:
    """Returns a noun phrase; a negated indefinite phrase has "any" in English, "kein" in German.

    The English genitive of `owner` is formed with "of" if `of` is true, and otherwise with 's.
    """
    gender, genitive, head = "p" if plural else noun.gender, Piece(), Piece()
    negations = [negation] if negation and determiner in (INDEFINITE, BARE) else []
    determiner = (NO if noun.plural else NO_MASS) if negations else determiner
    article = Article(determiner, noun, case, gender, Piece())
    pieces = [article, *negations]
    form = determiner.forms[case, gender]
    ending = ENDINGS["strong" if form == determiner.stem else "weak"][case, gender]
    english, german = [], _by_word(form, *pieces)
    for adjective in adjectives:
        quality = (Piece(),)
        english.append((adjective.english, quality))
        german.append((adjective.stem + ending, quality))
    english += _by_word(noun.plural if plural else noun.singular, head)
    german.append((noun.forms[case, gender], (head,)))
    form = determiner.plural if plural else determiner.singular
    before = _by_word("an" if form == "a" and english[0][0][0] in "aeiou" else form, article)
    if owner:
        (first, pieces), *rest = owner.german
        german += [(first, (*pieces, genitive)), *rest]
    if owner and of:
        english += [("of", (genitive,)), *owner.english]
    elif owner:
        before = [*owner.english, ("'s", (article,))]
    person, negatable = "p" if plural else "3s", determiner is not EVERY
    return Phrase(before + english, german, person, determiner.definite, negatable=negatable)


def _verb_forms(clause: Clause, support: bool, final: bool) -> tuple[Phrase, Phrase, Phrase]:
    """Returns the finite verbs, other verbs and English particle; `support` adds do-support."""
    verb, modal, tense, person = clause.verb, clause.modal, clause.tense, clause.subject.person
    auxiliary, lexical, particle = every = Piece(), Piece(), Piece()
    past, third = tense == "past", person == "3s"
    if verb is None:
        be, sein = (AUXILIARIES[w][person] for w in (("was", "war") if past else ("be", "sein")))
        return Phrase([(be, every)], [(sein, every)]), Phrase([], []), Phrase([], [])

    do, form = "did" if past else "does" if third else "do", verb.base
    finite, before = _by_word(do if support else "", auxiliary), []
    pieces = (lexical,) if verb.particle else (lexical, particle)
    if modal and modal.english == "want to":  # an ordinary verb in English
        before = _by_word("wants to" if third and not support else "want to", auxiliary)
    elif modal:
        finite = _by_word(modal.english, auxiliary)
    elif tense == "perfect":
        finite, form = (_by_word("has" if third else "have", auxiliary), verb.past_participle)
    elif not support:
        form = verb.past if past else verb.third if third else verb.base
        pieces = (auxiliary, *pieces)
    rest = [*before, (form, pieces)]
    after = Phrase(_by_word(verb.particle, particle), [])

    forms = modal.present if modal else verb.present if tense == "present" else verb.auxiliary
    assert forms  # the tense was chosen to suit the verb
    if modal or tense != "present":
        bracket = [(verb.infinitive if modal else verb.participle, (lexical, particle))]
        german = (forms[person], (auxiliary,))
    elif final or not verb.prefix:
        german, bracket = (verb.prefix + forms[person], every), []
    else:
        german, bracket = (forms[person], (auxiliary, lexical)), [(verb.prefix, (particle,))]
    return Phrase(finite, [german]), Phrase(rest, bracket), after


def spell(clause: Clause) -> Phrase:
    """Returns a clause as words."""
    subject, verb, _, _, negation, objects, places, time, middle, fronted, order, question = clause
    first, last = (time, ()) if fronted else ((), time)
    finite, rest, after = _verb_forms(clause, bool(negation) or question, order == "final")
    no = Phrase([], [])
    if negation:
        kein = any(negation in pieces for _, pieces in joined(*objects).german)
        no = Phrase(_by_word("not", negation), [] if kein else _by_word("nicht", negation))
    splits = verb and verb.splits and objects[0].pronoun
    english = [finite, subject] if question else [subject, finite]
    english += [no, *middle, rest, *([*objects, after] if splits else [after, *objects])]
    definite, others = ([p for p in objects if p.definite is side] for side in (True, False))
    field = [*definite, *last, *middle, no, *others, *places, rest]  # in the German bracket
    german = {
        "first": [*first, finite, subject, *field],
        "second": [subject, finite, *field],
        "final": [*first, subject, *field, finite],
    }["first" if fronted and order == "second" else order]
    return Phrase(joined(*first, *english, *places, *last).english, joined(*german).german)


def subordinate(main: Clause, link: Phrase, sub: Clause, sub_first: bool = False) -> list[Part]:
    """Returns the parts of two clauses joined by because/weil or that/dass, in either order."""
    second, comma = [link, sub._replace(order="final")], _by_word(",")
    if sub_first:
        return [*second, Phrase(comma, comma), main._replace(order="first")]
    return [main, Phrase([], comma), *second]


def _written_clause(words: list[Word]) -> list[Word]:
    """Applies contractions, and attaches punctuation and 's to the previous word."""
    result = words[:1]
    for text, pieces in words[1:]:
        last, others = result[-1]
        if form := last + text if text in MARKS else CONTRACTIONS.get(f"{last} {text}"):
            result[-1] = form, (*others, *pieces)
        else:
            result.append((text, pieces))
    return result


def align(*parts: Part) -> Pair:
    """Returns capitalised sentences, with alignment links between words that share a meaning."""
    sentence = joined(*(spell(part) if isinstance(part, Clause) else part for part in parts))
    english, german = _written_clause(sentence.english), _written_clause(sentence.german)
    places: dict[Piece, list[int]] = {}
    for i, (_, pieces) in enumerate(english):
        for piece in pieces:
            places.setdefault(piece, []).append(i)
    cells = [(piece, j) for j, (_, pieces) in enumerate(german) for piece in pieces]
    links = {(i, j) for piece, j in cells for i in places.get(piece, ())}
    source, target = (" ".join([text for text, _ in words]) for words in (english, german))
    capitals = source[0].upper() + source[1:], target[0].upper() + target[1:]
    return Pair(*capitals, tuple(sorted(links)))
