"""The word classes of the embedded corpus, and the rules that make their forms.

A word carries all its forms in both languages, made once from what `lexicon` says of it. Cases,
genders and persons are the strings below; the forms of nouns, articles and adjectives are looked up
by case and gender, those of verbs by person.

Source: M. Durrell, "Hammer's German Grammar and Usage", the chapters on nouns, articles,
adjectives and verbs (conjugation).
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

CASES = ("nominative", "accusative", "dative", "genitive")
GENDERS = "mfnp"  # masculine, feminine, neuter; the plural has one declension for all three
PERSONS = ("1s", "2s", "3s", "p")  # the plural is one form in both languages (we, they)
CELLS = [(case, gender) for case in CASES for gender in GENDERS]

# Kinds that stand for several where `lexicon` names what fits where.
_GROUPS = {
    "being": ("person", "animal"),
    "goods": ("thing", "clothing", "vehicle", "device", "surface"),
}


def expand_kinds(cell: str) -> tuple[str, ...]:
    """The kinds that a comma-separated cell of `lexicon` names, groups written out."""
    kinds = [_GROUPS.get(kind, (kind,)) for kind in cell.split(",") if kind]
    return tuple(kind for group in kinds for kind in group)


def english_form(word: str, suffix: str) -> str:
    """`word` with the English suffix "s" or "ed", spelling rules applied."""
    if word[-1] == "y" and word[-2] not in "aeiou":
        return word[:-1] + "ie" + suffix[-1]
    if suffix == "s":
        return word + ("es" if word.endswith(("s", "sh", "ch", "x", "o")) else "s")
    return word + ("d" if word.endswith("e") else "ed")


# --- Nouns -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Noun:
    """A noun; `forms[case, gender]` is its German form, with gender "p" for the plural."""

    singular: str
    plural: str
    gender: str
    kinds: tuple[str, ...]
    forms: dict[tuple[str, str], str]

    @property
    def mass(self) -> bool:
        """Whether it is uncountable: no indefinite article and no plural."""
        return not self.plural


def make_noun(kinds: str, english: str, german: str, gender: str, plural: str, suffix: str) -> Noun:
    """The noun of a row of `lexicon`; `suffix` is the ending of the genitive singular."""
    # A weak noun is known by a genitive in -n, which is then every case but the nominative.
    genitive = german + suffix
    oblique = genitive if suffix.endswith("n") else german
    dative_plural = plural if plural.endswith(("n", "s")) else plural + "n"
    singular = zip(CASES, (german, oblique, oblique, genitive), strict=True)
    forms = {(case, gender): form for case, form in singular}
    if plural:
        plurals = (plural, plural, dative_plural, plural)
        forms |= {(case, "p"): form for case, form in zip(CASES, plurals, strict=True)}
    one, _, many = english.partition("/")
    many = (many or english_form(one, "s")) if plural else ""
    return Noun(one, many, gender, expand_kinds(kinds), forms)


# --- Articles, adjectives and pronouns ---------------------------------------------------------

# Endings of der-words, and of adjectives that no article ending precedes; columns are GENDERS.
STRONG = {
    "nominative": ("er", "e", "es", "e"),
    "accusative": ("en", "e", "es", "e"),
    "dative": ("em", "er", "em", "en"),
    "genitive": ("es", "er", "es", "er"),
}
# ein-words lack the ending in exactly these three places.
BARE_EIN = {("nominative", "m"), ("nominative", "n"), ("accusative", "n")}
Declension = dict[tuple[str, str], tuple[str, str]]


@dataclass(frozen=True, eq=False)
class Determiner:
    """An article or a word in its place; `forms[case, gender]` is (German form, its ending)."""

    singular: str
    plural: str
    definite: bool
    forms: Declension


def declined(stem: str, bare: Collection[tuple[str, str]] = ()) -> Declension:
    """The forms of a der-word, or of an ein-word: `bare` cells have no ending."""
    endings = {(case, g): STRONG[case][GENDERS.index(g)] for case, g in CELLS}
    return {
        cell: (stem, "") if cell in bare else (stem + ending, ending)
        for cell, ending in endings.items()
    }


def undeclined(word: str) -> Declension:
    """The forms of a word that is the same everywhere and leaves all endings to adjectives."""
    return dict.fromkeys(CELLS, (word, ""))


class Adjective(NamedTuple):
    """An adjective: `german` alone after a verb, `stem` before an ending."""

    english: str
    german: str
    stem: str
    kinds: tuple[str, ...]
    color: bool


def adjective_ending(case: str, gender: str, determiner_ending: str) -> str:
    """The ending of an adjective: strong unless the determiner already shows the strong ending."""
    if determiner_ending:
        direct = case == "nominative" or (case == "accusative" and gender in "fn")
        return "e" if direct and gender != "p" else "en"
    if case == "genitive" and gender in "mn":
        return "en"
    return STRONG[case][GENDERS.index(gender)]


class Pronoun(NamedTuple):
    """A personal pronoun in both languages; "you" is one familiar person, German du."""

    subject: str
    object: str
    person: str
    nominative: str
    accusative: str
    dative: str

    def is_reflexive(self, subject: "Pronoun | None") -> bool:
        """Whether after this subject the object would be another word: "I see me", "we see me"."""
        first_persons = subject and {subject.subject, self.subject} <= {"I", "we"}
        return bool(first_persons) or (subject == self and self.person == "2s")


# --- Verbs -------------------------------------------------------------------------------------


def by_person(*forms: str) -> dict[str, str]:
    """The forms of a verb, given in the order of PERSONS."""
    return dict(zip(PERSONS, forms, strict=True))


HABEN = by_person("habe", "hast", "hat", "haben")
SEIN = by_person("bin", "bist", "ist", "sind")
WAR = by_person("war", "warst", "war", "waren")
WERDEN = by_person("werde", "wirst", "wird", "werden")
BE = by_person("am", "are", "is", "are")
WAS = by_person("was", "were", "was", "were")
# Present tenses that no rule makes, by their third person.
ANOMALOUS = {
    "hat": HABEN,
    "mag": by_person("mag", "magst", "mag", "mögen"),
    "weiß": by_person("weiß", "weißt", "weiß", "wissen"),
}


class Preposition(NamedTuple):
    """A preposition and the German case it governs in the sense meant."""

    english: str
    german: str
    case: str


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb and the frame it heads.

    `present[person]` is its finite form without `prefix`, the separable prefix if any. `particle`
    follows the English verb; if `splits`, a pronoun object comes between. `frame` says which
    complements it takes (see `grammar`), `auxiliary` forms its perfect (None: present tense only).
    """

    base: str
    third: str
    past: str
    past_participle: str
    particle: str
    splits: bool
    prefix: str
    infinitive: str
    participle: str
    present: dict[str, str]
    auxiliary: dict[str, str] | None
    frame: str
    subjects: tuple[str, ...]
    objects: tuple[str, ...]
    preposition: Preposition | None


def make_verb(
    frame: str,
    english: str,
    german: str,
    third: str,
    participle: str,
    aux: str,
    subjects: str,
    objects: str = "",
    *preposition: str,
) -> Verb:
    """The verb of a row of `lexicon`; `aux` is "h" for haben, "s" for sein, or empty."""
    head, *particle = english.replace("+", " ").split(" ")
    base, *irregular = head.split("/")
    past, past_participle = irregular or [english_form(base, "ed")] * 2
    prefix, _, stem = german.rpartition("|")
    # The second person has the vowel of the third; after a sibilant the two are the same.
    second = third if third[:-1].endswith(("s", "ß", "z")) else third[:-1] + "st"
    present = ANOMALOUS.get(third, by_person(stem[:-2] + "e", second, third, stem))
    third_english = "has" if base == "have" else english_form(base, "s")
    return Verb(
        *(base, third_english, past, past_participle, " ".join(particle), "+" in english),
        *(prefix, prefix + stem, participle, present),
        *({"h": HABEN, "s": SEIN}.get(aux), frame, expand_kinds(subjects), expand_kinds(objects)),
        preposition=Preposition(*preposition) if preposition else None,
    )


class Modal(NamedTuple):
    """A modal or the future auxiliary; `to` marks the one that is an ordinary verb in English."""

    english: str
    to: bool
    negatable: bool  # "must not" is not "muss nicht", so must stays affirmative
    present: dict[str, str]


# --- Adverbials --------------------------------------------------------------------------------


class Adverbial(NamedTuple):
    """A fixed phrase; `links` aligns its English to its German words."""

    english: tuple[str, ...]
    german: tuple[str, ...]
    links: tuple[tuple[int, int], ...]


def make_adverbial(english: str, german: str, links: str) -> Adverbial:
    """The adverbial of a row of `lexicon`; links are written as "0-1,1-0"."""
    pairs = [link.split("-") for link in links.split(",")]
    return Adverbial(
        tuple(english.split()), tuple(german.split()), tuple((int(i), int(j)) for i, j in pairs)
    )
