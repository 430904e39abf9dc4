"""Contrastive pairs of the built-in grammar: a right German translation, and one with an error.

An error is one other property of a clause or a determiner, which the grammar puts into words. Since
a German sentence is a function of the English one, a different sentence is wrong.

Source: R. Sennrich, "How Grammatical is Character-level Neural Machine Translation?" (EACL 2017).
"""

import zlib
from collections.abc import Iterator
from typing import NamedTuple

from transformer.data.synthetic import clauses, fill
from transformer.data.synthetic.clauses import Article, Clause, Part
from transformer.data.synthetic.grammar import Composer


class Contrast(NamedTuple):
    """A source, its right translation, and a translation with one error of a phenomenon."""

    phenomenon: str  # "number", "order", "tense", "negation", "case" or "gender"
    source: str
    target: str
    wrong: str


def contrasts(seed: int = 0, size: int = 1000) -> list[Contrast]:
    """Returns the contrasts of the first `size` test pairs of `grammar.generate`.

    There is at most one per phenomenon and pair; a hash of the source selects one of the errors.
    No run's training data has any of these pairs, whatever its seed.
    """
    composer, sizes, results = Composer(seed), {"test": size}, []
    items = fill(lambda: [(composer.sentence(), composer.parts)], lambda x: x[0].target, sizes)
    for pair, parts in items["test"]:
        errors: dict[str, list[str]] = {}
        for i, part in enumerate(parts):
            for phenomenon, wrong in _errors(part) if isinstance(part, Clause) else ():
                text = clauses.align(*parts[:i], wrong, *parts[i + 1 :]).target
                if text != pair.target:
                    errors.setdefault(phenomenon, []).append(text)
        number = zlib.crc32(pair.source.encode())
        results += [Contrast(x, *pair[:2], e[number % len(e)]) for x, e in errors.items()]
    return results


def _errors(clause: Clause) -> Iterator[tuple[str, Part]]:
    """Yields the phenomenon and the clause with each error, of which some change no word."""
    subject, verb, words = clause.subject, clause.verb, clauses.spell(clause)
    person = {"3s": "p", "p": "3s"}.get(subject.person)
    if person and "und" not in dict(subject.german):  # before two names, "schläft" is possible
        yield "number", clause._replace(subject=subject._replace(person=person))
    if not clause.question:  # "Du schläfst?" is a question, too
        yield "order", clause._replace(order="first" if clause.order == "final" else "final")
    if not verb or (verb.auxiliary and verb.past != verb.base):  # "they read" may be past
        tenses = {"past": "present", "perfect": "present", "present": "perfect" if verb else "past"}
        yield "tense", clause._replace(tense=tenses.get(clause.tense, clause.tense))
    # Two negations are one in some dialects, and a question has the same answers with "kein".
    positive = not clause.question and {"nicht", "nie"}.isdisjoint(dict(words.german))
    if clause.negation:
        yield "negation", clause._replace(negation=None)
    elif positive and subject.negatable and all(phrase.definite for phrase in clause.objects):
        yield "negation", clause._replace(negation=clauses.Piece())
    for i, (form, pieces) in enumerate(words.german):
        for article in (piece for piece in pieces if isinstance(piece, Article)):
            for phenomenon, other in _forms(article, form, positive):
                german = [*words.german[:i], (other, pieces), *words.german[i + 1 :]]
                yield phenomenon, words._replace(german=german)


def _forms(article: Article, form: str, positive: bool) -> Iterator[tuple[str, str]]:
    """Yields the phenomenon and the form of other determiners of a noun phrase."""
    determiner, noun, case, gender, _ = article
    cases = {determiner.forms[other, gender] for other in clauses.CASES[:3]}
    genders = {determiner.forms[case, other] for other in clauses.GENDERS[:3] if gender != "p"}
    # "ihr" is also a pronoun, "kauft ihr Brot"; and "die Lehrer" would be an error of number.
    has_number = noun.forms[case, gender] != noun.forms[case, noun.gender if gender == "p" else "p"]
    if determiner.stem != "ihr" and has_number:
        yield from (("case", other) for other in sorted(cases - genders))
        yield from (("gender", other) for other in sorted(genders - cases))
    if determiner is clauses.INDEFINITE and positive:
        yield "negation", "k" + form
    if determiner is clauses.NO and gender != "p":
        yield "negation", form[1:]
