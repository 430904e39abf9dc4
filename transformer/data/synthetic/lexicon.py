"""The words of the synthetic English-German corpus, from `lexicon.txt`, and inflection rules.

Kinds ("person", "food", ...) keep sentences sensible: a verb lists the kinds of its subject and
object, an adjective those that it describes; "weather" is said of "it".

Source: M. Durrell, "Hammer's German Grammar and Usage", the chapters on the word classes.
"""

import functools
import re
from collections import namedtuple
from pathlib import Path

from transformer.data.synthetic import read_tables

CASES = ("nominative", "accusative", "dative", "genitive")
GENDERS = "mfnp"  # masculine, feminine, neuter; the plural has one declension for all three
PERSONS = ("1s", "2s", "3s", "p")  # the plural is one form in both languages (we, they)
GROUPS = {"being": "person,animal", "goods": "thing,clothing,vehicle,device,surface"}  # kind groups
CELLS = [(case, gender) for case in CASES for gender in GENDERS]
Kinds = tuple[str, ...]

# An adjective is `german` after a verb, but its `stem` before an ending; `present` is by person.
Adjective = namedtuple("Adjective", "english german stem kinds")
Pronoun = namedtuple("Pronoun", "subject object person nominative accusative dative")
Modal = namedtuple("Modal", "english present")


def english_form(word: str, suffix: str) -> str:
    """Returns `word` with the English suffix "s" or "ed", by the spelling rules."""
    form = re.sub("([^aeiou])y(?=(s|ed)$)", r"\1ie", word + suffix)
    return re.sub("e+ed$", "ed", re.sub("(s|sh|ch|x|o)s$", r"\1es", form))


def _kinds_of_words(cell: str) -> Kinds:
    return tuple(",".join(GROUPS.get(kind, kind) for kind in cell.split(",")).split(","))


def _forms_by_person(forms: list[str]) -> dict[str, str]:
    return dict(zip(PERSONS, forms, strict=True))


def _group_nouns(rows: list[list[str]]) -> dict[str, list[list[str]]]:
    return {name: [cells for group, *cells in rows if group == name] for name, *_ in rows}


class Noun:
    """A noun; `forms` has its German forms by case and gender. A mass noun has no `plural`."""

    def __init__(self, *row: str):
        english, german, self.gender, plural, suffix, kinds = row
        self.singular, _, many = english.partition("/")
        self.plural = (many or english_form(self.singular, "s")) if plural else ""
        self.kinds = _kinds_of_words(kinds)
        # A genitive in -n marks a weak noun; then every case except the nominative has this form.
        oblique = german + suffix if suffix.endswith("n") else german
        dative = plural if plural.endswith(("n", "s")) else plural + "n"
        forms = german, oblique, oblique, german + suffix, plural, plural, dative, plural
        cells = [(case, gender) for gender in (self.gender, "p") for case in CASES]
        self.forms = dict(zip(cells, forms, strict=True))


class Determiner:
    """A determiner; a form in `german` that equals the `stem` has no ending."""

    def __init__(self, singular: str, plural: str, stem: str, endings: str, definite: str):
        self.singular, self.plural, self.stem = singular, plural, stem
        self.definite = bool(definite)
        self.forms = {cell: stem + ending for cell, ending in ENDINGS[endings].items()}


class Verb:
    """A verb; its `frame` names the complements that it takes, see `grammar`.

    `present` has its finite forms by person, without `prefix`, the separable prefix if any.
    `particle` follows the English verb; if `splits`, a pronoun object comes between. `auxiliary`
    forms the perfect; a verb without one has only the present tense.
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
        # The second person has the vowel of the third; after a sibilant the two are the same.
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
    """Returns the nouns of any of the kinds."""
    return [noun for noun in NOUNS if not set(kinds).isdisjoint(noun.kinds)]
