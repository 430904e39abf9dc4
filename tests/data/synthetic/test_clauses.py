"""Words, phrases and clauses come out right: forms, order, alignment."""

import pytest

from meanings import clause, phrase
from transformer.data.synthetic import lexicon
from transformer.data.synthetic.clauses import align, fixed, noun_phrase, spell
from transformer.data.synthetic.lexicon import CASES, GENDERS

MODAL = {modal.english: modal for modal in (*lexicon.MODALS, lexicon.FUTURE)}
ACC, DAT = "accusative", "dative"
OLD_HOUSES, BOY = phrase("the old houses", "genitive"), phrase("the boy", "genitive")
MEANINGS = {
    "agreement": clause("the old man", "see", ("a small dog", ACC)),
    "weak noun": clause("I", "help", ("this young student", DAT)),
    "subject-verb agreement": clause("you", "read", ("two long books", ACC)),
    "mass noun": clause("Anna", "drink", ("cold milk", ACC), middle="often"),
    "verb-second": clause("we", "work", places=["in the garden"], time="today", fronted=True),
    "separable verb": clause("she", "call", ("her aunt", ACC), time="every day"),
    "split verb": clause("Paul", "pick up", ("him", ACC), time="now"),
    "separable participle": clause(
        "the teacher", "turn on", ("the lamp", ACC), tense="perfect", middle="already"
    ),
    "perfect with sein": clause("they", "go", places=["to the school"], tense="perfect"),
    "past": clause("a woman", "help", ("me", DAT), tense="past", time="yesterday", fronted=True),
    "nicht": clause("the girl", "read", ("the letter", ACC), negated=True, time="today"),
    "kein": clause("the boys", "buy", ("an apple", ACC), negated=True),
    "any": clause("he", "eat", ("meat", ACC), negated=True, tense="past", time="last week"),
    "nicht before a place": clause(
        "my brother", "put", ("the hat", ACC), places=["onto the bed"], negated=True
    ),
    "modal": clause("Maria", "visit", ("us", ACC), modal=MODAL["want to"], tense="modal"),
    "cannot": clause("I", "sleep", modal=MODAL["can"], tense="modal", negated=True),
    "future": clause("it", "rain", modal=MODAL["will"], tense="modal", time="tomorrow"),
    "two objects": clause("the doctor", "give", ("the child", DAT), ("a red flower", ACC)),
    "verb with a preposition": clause("Peter", "wait", places=["for the old bus"]),
    "compound": clause("the dogs", "run", places=["through the train station"]),
    "copula": clause("our cats", None, places=[fixed("tired", "müde")], tense="past", negated=True),
    "genitive": clause(phrase("the door", owner=OLD_HOUSES, of=True), "belong to", ("us", DAT)),
    "genitive with 's": clause(phrase("the new car", owner=BOY), "belong to", ("us", DAT)),
    "name's genitive": clause("Anna's new car", "belong to", ("her brother", DAT)),
}
STATEMENTS = """
agreement: The old man sees a small dog = Der alte Mann sieht einen kleinen Hund
weak noun: I help this young student = Ich helfe diesem jungen Studenten
subject-verb agreement: You read two long books = Du liest zwei lange Bücher
mass noun: Anna often drinks cold milk = Anna trinkt oft kalte Milch
verb-second: Today we work in the garden = Heute arbeiten wir im Garten
separable verb: She calls her aunt every day = Sie ruft ihre Tante jeden Tag an
split verb: Paul picks him up now = Paul holt ihn jetzt ab
separable participle: The teacher has already turned on the lamp = \
Der Lehrer hat die Lampe schon eingeschaltet
perfect with sein: They have gone to the school = Sie sind zur Schule gegangen
past: Yesterday a woman helped me = Gestern hat eine Frau mir geholfen
nicht: The girl does not read the letter today = Das Mädchen liest den Brief heute nicht
kein: The boys do not buy an apple = Die Jungen kaufen keinen Apfel
any: He did not eat any meat last week = Er hat letzte Woche kein Fleisch gegessen
nicht before a place: My brother does not put the hat on the bed = \
Mein Bruder legt den Hut nicht auf das Bett
modal: Maria wants to visit us = Maria will uns besuchen
cannot: I cannot sleep = Ich kann nicht schlafen
future: It will rain tomorrow = Es wird morgen regnen
two objects: The doctor gives the child a red flower = Der Arzt gibt dem Kind eine rote Blume
verb with a preposition: Peter waits for the old bus = Peter wartet auf den alten Bus
compound: The dogs run through the train station = Die Hunde laufen durch den Bahnhof
copula: Our cats were not tired = Unsere Katzen waren nicht müde
genitive: The door of the old houses belongs to us = Die Tür der alten Häuser gehört uns
genitive with 's: The boy's new car belongs to us = Das neue Auto des Jungen gehört uns
name's genitive: Anna's new car belongs to her brother = Annas neues Auto gehört ihrem Bruder
"""
QUESTIONS = """
separable verb: Does she call her aunt every day = Ruft sie ihre Tante jeden Tag an
perfect with sein: Have they gone to the school = Sind sie zur Schule gegangen
modal: Does Maria want to visit us = Will Maria uns besuchen
future: Will it rain tomorrow = Wird es morgen regnen
"""
SUBORDINATE = """
separable verb: Sie ihre Tante jeden Tag anruft
separable participle: Der Lehrer die Lampe schon eingeschaltet hat
modal: Maria uns besuchen will
nicht: Das Mädchen den Brief heute nicht liest
kein: Die Jungen keinen Apfel kaufen
copula: Unsere Katzen nicht müde waren
"""
LINKS = """
separable verb: She-Sie calls-ruft calls-an her-ihre aunt-Tante every-jeden day-Tag
split verb: Paul-Paul picks-holt him-ihn up-ab now-jetzt
kein: The-Die boys-Jungen do-kaufen buy-kaufen not-keinen an-keinen apple-Apfel
past: Yesterday-Gestern a-eine woman-Frau helped-hat helped-geholfen me-mir
verb-second: Today-Heute we-wir work-arbeiten in-im the-im garden-Garten
modal: Maria-Maria wants-will to-will visit-besuchen us-uns
cannot: I-Ich cannot-kann cannot-nicht sleep-schlafen
genitive: The-Die door-Tür of-der the-der old-alten houses-Häuser belongs-gehört to-gehört us-uns
genitive with 's: The-des boy's-Jungen boy's-Das new-neue car-Auto belongs-gehört to-gehört us-uns
compound: The-Die dogs-Hunde run-laufen through-durch the-den train-Bahnhof station-Bahnhof
"""


def rows(table):
    """The cases of a table: the name of a meaning, and what is expected of it."""
    split = [line.split(": ") for line in table.strip().splitlines()]
    return pytest.mark.parametrize(("name", "expected"), split, ids=[name for name, _ in split])


@rows(STATEMENTS)
def test_examples_of_every_phenomenon_come_out_in_both_languages(name, expected):
    assert " = ".join(align(spell(MEANINGS[name]))[:2]) == expected


@rows(SUBORDINATE)
def test_subordinate_clauses_end_in_the_finite_verb(name, expected):
    assert align(spell(MEANINGS[name], "final")).target == expected


@rows(QUESTIONS)
def test_questions_begin_with_the_finite_verb(name, expected):
    assert " = ".join(align(spell(MEANINGS[name], "first", question=True))[:2]) == expected


@rows(LINKS)
def test_alignment_links_what_expresses_the_same(name, expected):
    pair = align(spell(MEANINGS[name]))
    english, german = pair.source.split(), pair.target.split()
    assert {f"{english[i]}-{german[j]}" for i, j in pair.alignment} == set(expected.split())


# Written out from a reference grammar (Durrell, the chapters on articles and adjectives): article
# and ending for m f n p, one row for each case.
DEFINITE = """
    der:e  die:e  das:e  die:en
    den:en die:e  das:e  die:en
    dem:en der:en dem:en den:en
    des:en der:en des:en der:en
"""
POSSESSIVE = """
    mein:er   meine:e   mein:es   meine:en
    meinen:en meine:e   mein:es   meine:en
    meinem:en meiner:en meinem:en meinen:en
    meines:en meiner:en meines:en meiner:en
"""
NONE = """
    :er :e  :es :e
    :en :e  :es :e
    :em :er :em :en
    :en :er :en :er
"""


@pytest.mark.parametrize(
    ("determiner", "table"),
    [(lexicon.THE, DEFINITE), (lexicon.POSSESSIVES[0], POSSESSIVE), (lexicon.BARE, NONE)],
    ids=["definite", "possessive", "none"],
)
def test_articles_and_adjectives_agree_in_gender_case_and_number(determiner, table):
    nouns = [next(n for n in lexicon.NOUNS if n.plural and g in (n.gender, "p")) for g in GENDERS]
    small = [a for a in lexicon.ADJECTIVES if a.english == "small"]
    for case, row in zip(CASES, table.strip().splitlines(), strict=True):
        for gender, noun, cell in zip(GENDERS, nouns, row.split(), strict=True):
            spelled = noun_phrase(noun, gender == "p", determiner, small, case)
            article, ending = cell.split(":")
            expected = f"{article} klein{ending} {noun.forms[case, gender]}"
            assert " ".join(word for word, _ in spelled.german) == expected.strip(), (case, gender)
