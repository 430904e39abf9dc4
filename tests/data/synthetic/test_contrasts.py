"""A contrast has one error of its phenomenon, and no right translation is taken for a wrong one."""

import collections
import re

import pytest

from transformer.data.synthetic import clauses, contrasts, grammar
from transformer.data.synthetic.clauses import INDEFINITE, POSSESSIVES, THE, Clause, Phrase, fixed

SHE = Phrase([("she", ())], [("sie", ())], definite=True)
THEY = SHE._replace(person="p")
NAMES = clauses.joined(fixed("Anna", "Anna"), fixed("and", "und"), fixed("Paul", "Paul"))


def phrase(german, case="accusative", determiner=THE, plural=False):
    noun = next(n for n in clauses.NOUNS if n.forms["nominative", n.gender] == german)
    return clauses.noun_phrase(noun, plural, determiner, [], case)


def clause(subject, infinitive, *objects, **fields):
    verb = next(verb for verb in clauses.VERBS if verb.infinitive == infinitive)
    return Clause(subject, verb, objects=objects, **fields)


def errors(clause) -> dict[str, set[str]]:
    """The wrong clauses of each phenomenon."""
    texts, right = collections.defaultdict(set), clauses.align(clause).target
    for phenomenon, part in contrasts._errors(clause):
        texts[phenomenon] |= {clauses.align(part).target} - {right}
    return {phenomenon: wrong for phenomenon, wrong in texts.items() if wrong}


def test_the_errors_of_a_main_and_of_a_subordinate_clause_are_those_by_hand():
    hat = phrase("Hut", determiner=INDEFINITE)
    # "ein Hut" may be an error of case or of gender
    genders = "Die Mann kauft einen", "Das Mann kauft einen", "Der Mann kauft eine"
    assert errors(clause(phrase("Mann", "nominative"), "kaufen", hat)) == {
        "number": {"Der Mann kaufen einen Hut"},
        "order": {"Der Mann einen Hut kauft"},
        "tense": {"Der Mann hat einen Hut gekauft"},
        "negation": {"Der Mann kauft keinen Hut"},
        "case": {f"De{x} Mann kauft einen Hut" for x in "nm"} | {"Der Mann kauft einem Hut"},
        "gender": {f"{words} Hut" for words in genders},
    }
    garden = clauses.joined(fixed("in", "in"), phrase("Garten", "dative"))
    fields = {"negation": object(), "places": [garden], "order": "final"}
    cases = "der Milch nicht im", "die Milch nicht in den"
    assert errors(clause(THEY, "wegwerfen", phrase("Milch"), **fields)) == {
        "number": {"Sie die Milch nicht im Garten wegwirft"},
        "order": {"Werfen sie die Milch nicht im Garten weg"},
        "tense": {"Sie die Milch nicht im Garten weggeworfen haben"},
        "negation": {"Sie die Milch im Garten wegwerfen"},
        "case": {f"Sie {words} Garten wegwerfen" for words in cases},
        "gender": {f"Sie {article} Milch nicht im Garten wegwerfen" for article in ("den", "das")},
    }


AUNT, DOOR = phrase("Tante"), phrase("Tür", determiner=INDEFINITE)
OTHERS = phrase("Lehrer"), phrase("Lehrer", plural=True), phrase("Tante", determiner=POSSESSIVES[3])


@pytest.mark.parametrize(
    ("phenomenon", "exact", "change"),
    [  # a clause with this phenomenon; a change of it, after which an edit may be right
        ("number", clause(THEY, "sehen"), {"subject": NAMES._replace(person="p")}),
        ("order", clause(SHE, "sehen", AUNT), {"question": True, "order": "first"}),
        ("tense", clause(THEY, "schreiben"), {"verb": clause(THEY, "lesen").verb}),
        ("negation", clause(SHE, "zumachen", DOOR), {"middle": [fixed("never", "nie")]}),
        ("case", clause(THEY, "sehen", phrase("Tante", plural=True)), {"objects": [OTHERS[1]]}),
        *(("gender", clause(SHE, "sehen", AUNT), {"objects": [each]}) for each in OTHERS),
    ],
)
def test_an_edit_that_may_be_right_is_left_out(phenomenon, exact, change):
    assert phenomenon in errors(exact)
    assert phenomenon not in errors(exact._replace(**change))


PREFIXES = {verb.prefix for verb in clauses.VERBS}
FORMS = [*clauses.AUXILIARIES.values(), *(verb.present for verb in clauses.VERBS)]
VERBS = {x + form for forms in FORMS for form in ("", *forms.values()) for x in PREFIXES}
VERBS |= {verb.participle for verb in clauses.VERBS}
WORDS = {short: words for words, short in clauses.CONTRACTIONS.items()}
REST = {  # what an error of a phenomenon leaves as it is
    "tense": lambda words: [word for word in words if word not in VERBS],
    "negation": lambda words: [re.sub("^kein", "ein", word) for word in words if word != "nicht"],
    "order": lambda words: sorted("".join(words)),
}


def is_one_error(phenomenon, *texts) -> bool:
    """Returns whether two sentences differ, and only in what this phenomenon is."""
    words = (" ".join(WORDS.get(x, x) for x in re.findall(r"\w+", t.lower())) for t in texts)
    right, wrong = (text.split() for text in words)
    if rest := REST.get(phenomenon):
        return right != wrong and rest(right) == rest(wrong)
    return len(right) == len(wrong) and sum(map(str.__ne__, right, wrong)) == 1


@pytest.mark.parametrize("size", [20, pytest.param(2000, marks=pytest.mark.slow)])
def test_contrasts_have_one_error_and_are_never_the_right_translation(size):
    items = contrasts.contrasts(3, size)
    targets = dict(pair[:2] for pair in grammar.generate(3, {"test": size})["test"])
    wrong = {item[:2]: item.wrong for item in items}
    assert len(wrong) == len(items) > 4 * size == 4 * len(targets)
    for phenomenon, source, target, other in items:
        assert targets[source] == target
        assert is_one_error(phenomenon, target, other)
        if phenomenon not in REST and ("order", source) in wrong:  # a control: two errors
            assert not is_one_error(phenomenon, wrong["order", source], other)
