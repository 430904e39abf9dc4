"""Words, phrases and clauses come out right: forms, order, alignment."""

import pytest

from meanings import ADVERBIALS, DETERMINERS, PREPOSITIONS, clause, noun_phrase, phrase, text
from transformer.data.synthetic import lexicon
from transformer.data.synthetic.clauses import (
    NounPhrase,
    Phrase,
    align,
    english_clause,
    german_clause,
    german_noun_phrase,
)
from transformer.data.synthetic.inflection import CASES, GENDERS, PERSONS

MODAL = {modal.english: modal for modal in (*lexicon.MODALS, lexicon.FUTURE)}
ACC, DAT = "accusative", "dative"
ADJECTIVAL = Phrase([("tired", (1,))], [("müde", (1,))])
EXAMPLES = {
    "agreement in the noun phrase": (
        clause("the old man", "see", ("a small dog", ACC)),
        "the old man sees a small dog",
        "der alte Mann sieht einen kleinen Hund",
    ),
    "weak noun": (
        clause("I", "help", ("this young student", DAT)),
        "I help this young student",
        "ich helfe diesem jungen Studenten",
    ),
    "subject-verb agreement": (
        clause("you", "read", ("two long books", ACC)),
        "you read two long books",
        "du liest zwei lange Bücher",
    ),
    "mass noun without article": (
        clause("Anna", "drink", ("cold milk", ACC), middle="often"),
        "Anna often drinks cold milk",
        "Anna trinkt oft kalte Milch",
    ),
    "verb-second": (
        clause("we", "work", places=["in the garden"], time="today", fronted=True),
        "today we work in the garden",
        "heute arbeiten wir im Garten",
    ),
    "separable verb": (
        clause("she", "call", ("her aunt", ACC), time="every day"),
        "she calls her aunt every day",
        "sie ruft ihre Tante jeden Tag an",
    ),
    "split English verb": (
        clause("Paul", "pick up", ("him", ACC), time="now"),
        "Paul picks him up now",
        "Paul holt ihn jetzt ab",
    ),
    "separable participle": (
        clause("the teacher", "turn on", ("the lamp", ACC), tense="perfect", middle="already"),
        "the teacher has already turned on the lamp",
        "der Lehrer hat die Lampe schon eingeschaltet",
    ),
    "perfect with sein": (
        clause("they", "go", places=["to the school"], tense="perfect"),
        "they have gone to the school",
        "sie sind zur Schule gegangen",
    ),
    "past": (
        clause("a woman", "help", ("me", DAT), tense="past", time="yesterday", fronted=True),
        "yesterday a woman helped me",
        "gestern hat eine Frau mir geholfen",
    ),
    "nicht": (
        clause("the girl", "read", ("the letter", ACC), negated=True, time="today"),
        "the girl does not read the letter today",
        "das Mädchen liest den Brief heute nicht",
    ),
    "kein": (
        clause("the boys", "buy", ("an apple", ACC), negated=True),
        "the boys do not buy an apple",
        "die Jungen kaufen keinen Apfel",
    ),
    "kein with any": (
        clause("he", "eat", ("meat", ACC), negated=True, tense="past", time="last week"),
        "he did not eat any meat last week",
        "er hat letzte Woche kein Fleisch gegessen",
    ),
    "nicht before a place": (
        clause("my brother", "put", ("the hat", ACC), places=["onto the bed"], negated=True),
        "my brother does not put the hat on the bed",
        "mein Bruder legt den Hut nicht auf das Bett",
    ),
    "modal": (
        clause("Maria", "visit", ("us", ACC), modal=MODAL["want"], tense="modal"),
        "Maria wants to visit us",
        "Maria will uns besuchen",
    ),
    "negated modal": (
        clause("I", "sleep", modal=MODAL["can"], tense="modal", negated=True),
        "I cannot sleep",
        "ich kann nicht schlafen",
    ),
    "future": (
        clause("it", "rain", modal=MODAL["will"], tense="modal", time="tomorrow"),
        "it will rain tomorrow",
        "es wird morgen regnen",
    ),
    "two objects": (
        clause("the doctor", "give", ("the child", DAT), ("a red flower", ACC)),
        "the doctor gives the child a red flower",
        "der Arzt gibt dem Kind eine rote Blume",
    ),
    "verb with a preposition": (
        clause("Peter", "wait", places=["for the old bus"]),
        "Peter waits for the old bus",
        "Peter wartet auf den alten Bus",
    ),
    "compound": (
        clause("the dogs", "run", places=["through the train station"]),
        "the dogs run through the train station",
        "die Hunde laufen durch den Bahnhof",
    ),
    "copula": (
        clause("our cats", None, places=[ADJECTIVAL], tense="past", negated=True),
        "our cats were not tired",
        "unsere Katzen waren nicht müde",
    ),
    "genitive": (
        clause(phrase("the door", owner=noun_phrase("the old houses"), of=True), "belong to"),
        "the door of the old houses belongs to",
        "die Tür der alten Häuser gehört",
    ),
    "genitive with 's": (
        clause(phrase("the new car", owner=noun_phrase("the boy")), "belong to"),
        "the boy's new car belongs to",
        "das neue Auto des Jungen gehört",
    ),
    "genitive of a name": (
        clause(phrase("the new car", owner="Anna"), "belong to", ("her brother", DAT)),
        "Anna's new car belongs to her brother",
        "Annas neues Auto gehört ihrem Bruder",
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_of_every_phenomenon_come_out_in_both_languages(name):
    meaning, english, german = EXAMPLES[name]
    assert text(english_clause(meaning)) == english
    assert text(german_clause(meaning, "second")) == german


@pytest.mark.parametrize(
    ("name", "german"),
    [
        ("separable verb", "sie ihre Tante jeden Tag anruft"),
        ("separable participle", "der Lehrer die Lampe schon eingeschaltet hat"),
        ("modal", "Maria uns besuchen will"),
        ("nicht", "das Mädchen den Brief heute nicht liest"),
        ("kein", "die Jungen keinen Apfel kaufen"),
        ("copula", "unsere Katzen nicht müde waren"),
    ],
)
def test_subordinate_clauses_end_in_the_finite_verb(name, german):
    assert text(german_clause(EXAMPLES[name][0], "final")) == german


@pytest.mark.parametrize(
    ("name", "english", "german"),
    [
        ("separable verb", "does she call her aunt every day", "ruft sie ihre Tante jeden Tag an"),
        ("perfect with sein", "have they gone to the school", "sind sie zur Schule gegangen"),
        ("modal", "does Maria want to visit us", "will Maria uns besuchen"),
        ("future", "will it rain tomorrow", "wird es morgen regnen"),
    ],
)
def test_questions_begin_with_the_finite_verb(name, english, german):
    meaning = EXAMPLES[name][0]
    assert text(english_clause(meaning, question=True)) == english
    assert text(german_clause(meaning, "first")) == german


# Written out from a reference grammar (Durrell, the chapters on articles and on adjectives), not
# derived by a rule: article and ending for m f n p, one row for each case.
DEFINITE = """
    der:e  die:e  das:e  die:en
    den:en die:e  das:e  die:en
    dem:en der:en dem:en den:en
    des:en der:en des:en der:en
"""
INDEFINITE = """
    ein:er   eine:e   ein:es   :e
    einen:en eine:e   ein:es   :e
    einem:en einer:en einem:en :en
    eines:en einer:en eines:en :er
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


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("gender", GENDERS)
@pytest.mark.parametrize(
    ("determiner", "table"),
    [
        (lexicon.THE, DEFINITE),
        (lexicon.INDEFINITE, INDEFINITE),
        (lexicon.POSSESSIVES[0], POSSESSIVE),
        (lexicon.BARE, NONE),
    ],
    ids=["definite", "indefinite", "possessive", "none"],
)
def test_articles_and_adjectives_agree_in_gender_case_and_number(determiner, table, gender, case):
    row = table.split("\n")[1 + CASES.index(case)].split()
    article, ending = row[GENDERS.index(gender)].split(":")
    noun = next(n for n in lexicon.NOUNS if n.plural and gender in (n.gender, "p"))
    adjective = next(a for a in lexicon.ADJECTIVES if a.english == "small")
    made = NounPhrase(8, noun, gender, determiner, (adjective,))
    expected = [article] * bool(article) + ["klein" + ending, noun.forms[case, gender]]
    assert text(german_noun_phrase(made, case)) == " ".join(expected)


@pytest.mark.parametrize(
    ("english", "forms"),
    [
        ("man", "Mann Mann Mann Mannes Männer Männer Männern Männer"),
        ("student", "Student Studenten Studenten Studenten " + "Studenten " * 4),
        ("car", "Auto Auto Auto Autos Autos Autos Autos Autos"),
        ("bus", "Bus Bus Bus Busses Busse Busse Bussen Busse"),
        ("sister", "Schwester " * 4 + "Schwestern " * 4),
    ],
)
def test_nouns_decline(english, forms):
    noun = next(n for n in lexicon.NOUNS if n.singular == english)
    made = [noun.forms[case, gender] for gender in (noun.gender, "p") for case in CASES]
    assert made == forms.split()


@pytest.mark.parametrize(
    ("infinitive", "forms"),
    [
        ("arbeiten", "arbeite arbeitest arbeitet arbeiten"),
        ("lesen", "lese liest liest lesen"),
        ("tanzen", "tanze tanzt tanzt tanzen"),
        ("waschen", "wasche wäschst wäscht waschen"),
        ("einladen", "lade lädst lädt laden"),
        ("wissen", "weiß weißt weiß wissen"),
        ("haben", "habe hast hat haben"),
    ],
)
def test_verbs_conjugate(infinitive, forms):
    verb = next(v for v in lexicon.VERBS if v.infinitive == infinitive)
    assert [verb.present[person] for person in PERSONS] == forms.split()


def test_english_forms_follow_the_spelling_rules():
    plurals = {noun.singular: noun.plural for noun in lexicon.NOUNS}
    for singular, plural in {
        "story": "stories",
        "boy": "boys",
        "church": "churches",
        "radio": "radios",
    }.items():
        assert plurals[singular] == plural
    forms = {verb.base: (verb.third, verb.past) for verb in lexicon.VERBS}
    assert forms["wash"] == ("washes", "washed")
    assert forms["fly"] == ("flies", "flew")
    assert forms["go"] == ("goes", "went")
    assert forms["stay"] == ("stays", "stayed")
    assert forms["dance"] == ("dances", "danced")


def links(source, target):
    """The linked words of two clauses, as text."""
    pair = align(source, target)
    english, german = pair.source.split(), pair.target.split()
    return {f"{english[i]}-{german[j]}" for i, j in pair.alignment}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("separable verb", "she-sie calls-ruft calls-an her-ihre aunt-Tante every-jeden day-Tag"),
        ("split English verb", "Paul-Paul picks-holt him-ihn up-ab now-jetzt"),
        (
            "kein",
            "the-die boys-Jungen do-kaufen buy-kaufen not-keinen an-keinen apple-Apfel",
        ),
        ("past", "yesterday-gestern a-eine woman-Frau helped-hat helped-geholfen me-mir"),
        (
            "verb-second",
            "today-heute we-wir work-arbeiten in-im the-im garden-Garten",
        ),
        ("modal", "Maria-Maria wants-will to-will visit-besuchen us-uns"),
        ("negated modal", "I-ich cannot-kann cannot-nicht sleep-schlafen"),
        (
            "genitive",
            "the-die door-Tür of-der the-der old-alten houses-Häuser belongs-gehört to-gehört",
        ),
        (
            "genitive with 's",
            "the-des boy's-Jungen boy's-das new-neue car-Auto belongs-gehört to-gehört",
        ),
        (
            "compound",
            "the-die dogs-Hunde run-laufen through-durch the-den train-Bahnhof station-Bahnhof",
        ),
    ],
)
def test_alignment_links_what_expresses_the_same(name, expected):
    meaning, _, _ = EXAMPLES[name]
    assert links(english_clause(meaning), german_clause(meaning, "second")) == set(expected.split())


def test_lexicon_has_two_hundred_lemmas_and_no_english_form_has_two_german_ones():
    groups = {
        "noun": [(n.singular, n.forms["nominative", n.gender]) for n in lexicon.NOUNS],
        "plural": [(n.plural, n.forms["nominative", "p"]) for n in lexicon.NOUNS if not n.mass],
        "adjective": [(a.english, a.german) for a in lexicon.ADJECTIVES],
        # "think that" and "think of", "know that" and "know him" differ by their frame.
        "verb": [
            ((v.base, v.particle, v.frame, v.preposition), v.infinitive) for v in lexicon.VERBS
        ],
        "determiner": [(d.singular or d.plural, d) for d in DETERMINERS],
        "pronoun": [(p.subject, p) for p in lexicon.PRONOUNS],
        "modal": [(m.english, m) for m in lexicon.MODALS],
        "adverbial": list(ADVERBIALS.items()),
    }
    for group, entries in groups.items():
        assert len({english for english, _ in entries}) == len(entries), group
    lemmas = sum(len(entries) for group, entries in groups.items() if group != "plural")
    assert lemmas + len(PREPOSITIONS) + len(lexicon.NAMES) + len(lexicon.CITIES) >= 200
