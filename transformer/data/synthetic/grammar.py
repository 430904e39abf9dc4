"""The embedded corpus: a generated English-German grammar, and two toy sequence tasks.

Every sentence is drawn as one structure of meaning and spelled out twice, so German is a function
of English by construction. The phenomena are those that make German hard to translate into:
agreement inside the noun phrase, verb-second and verb-final order, separable verbs, the verb
bracket of perfect and modals, nicht against kein, case from verbs and prepositions, genitives.

Alignment. Each word carries the keys of the pieces of meaning it expresses; two words are linked
if they share one. So an article links to its article, "does" to the finite German verb, "has" to
"hat", a simple past ("bought") to both "hat" and "gekauft", "calls" to both parts of "ruft ... an",
the particle of "picks up" to the prefix ("ab"), "not" to "nicht" or "kein", which also links to "a"
or "any", "wants to" to "will", "of" and "the" to "des", "man's" to "Mannes" and to the article that
's stands for, and "in the" to "im". Every word has a link.

Splits. The German text decides, see `splits`: pairs with equal targets, and hence those with equal
sources, meet in one split, which keeps the first.

What is drawn here is spelled out by `clauses`, from the words in `lexicon` and their forms by the
rules of `inflection`.
"""

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

from transformer.data.pairs import Pair
from transformer.data.splits import fill
from transformer.data.synthetic import clauses
from transformer.data.synthetic import lexicon as lx
from transformer.data.synthetic.clauses import Clause, NounPhrase, Phrase, Sentence, align
from transformer.data.synthetic.inflection import (
    Adjective,
    Adverbial,
    Noun,
    Preposition,
    Pronoun,
    Verb,
)

Option = TypeVar("Option")

MIN_WORDS, MAX_WORDS = 4, 16  # words a sentence, in both languages
MAX_SEQUENCE = 12  # letters, of the toy sequences to train on
LETTERS = "abcdefghijklmnop"

# --- Composition: what is said, drawn at random --------------------------------------------------


class Composer:
    """Draws sentences; its probabilities set the frequency of each phenomenon."""

    def __init__(self, seed: int):
        self.uniform = random.Random(seed).random
        self.start()

    def start(self) -> None:
        """Forgets the last sentence."""
        self.keys = itertools.count(clauses.STEP, clauses.STEP)
        self.brief = False  # in sentences of two clauses
        self.used: list[object] = []
        self.pronoun: Pronoun | None = None  # the subject, if it is one

    def chance(self, probability: float) -> bool:
        return self.uniform() < probability

    def pick(self, options: Sequence[Option]) -> Option:
        return options[int(self.uniform() * len(options))]

    def new(self, options: Sequence[Option]) -> Option:
        """An option that the sentence does not have yet, if a few tries find one."""
        option = self.pick(options)
        for _ in range(3):
            if option not in self.used:
                break
            option = self.pick(options)
        self.used.append(option)
        return option

    def name(self) -> Phrase:
        return clauses.name_phrase(next(self.keys), self.new(lx.NAMES))

    def noun_phrase(self, kinds: tuple[str, ...], definite: bool = False) -> NounPhrase:
        """A noun of one of the kinds, with determiner, adjectives and owner as chance has it."""
        noun, key = self.new(lx.NOUNS_OF[kinds]), next(self.keys)
        plural = not noun.mass and self.chance(0.1 if "place" in kinds else 0.25)
        ownable = "unowned" not in noun.kinds
        owner, of, draw = None, False, self.uniform()
        if noun.kinds[0] in lx.WHOLES and self.chance(0.6):
            owner, of, determiner = self.owner(lx.WHOLES[noun.kinds[0]]), True, lx.THE
        elif draw < 0.08 and ownable:
            owner, determiner = self.owner(("person",)), lx.THE
            of = isinstance(owner, NounPhrase) and owner.gender == "p"
        elif draw < 0.26 and ownable:
            determiner = self.pick(lx.POSSESSIVES)
        elif draw < 0.36:
            determiner = lx.THIS
        elif draw < 0.44 and plural:
            determiner = self.pick(lx.NUMERALS)
        elif draw < 0.66 or definite:
            determiner = lx.THE
        else:
            determiner = lx.BARE if noun.mass else lx.INDEFINITE
        adjectives = self.adjectives(noun, 0.3 if self.brief else 0.5)
        gender = "p" if plural else noun.gender
        return NounPhrase(key, noun, gender, determiner, adjectives, owner, of)

    def adjectives(self, noun: Noun, probability: float) -> tuple[Adjective, ...]:
        if not self.chance(probability):
            return ()
        first, second = (self.pick(lx.ADJECTIVES_OF[noun.kinds[0]]) for _ in range(2))
        # Only a colour follows another adjective: the order is the same in both languages.
        return (first, second) if second.color and not first.color else (first,)

    def owner(self, kinds: tuple[str, ...]) -> NounPhrase | str:
        """A genitive; only "the" and possessives come before its noun, and rarely an adjective."""
        if kinds == ("person",) and self.chance(0.3):
            return self.new(lx.NAMES)
        noun, key = self.new(lx.NOUNS_OF[kinds]), next(self.keys)
        gender = "p" if self.chance(0.2) else noun.gender
        mine = "unowned" not in noun.kinds and self.chance(0.3)
        determiner = self.pick(lx.POSSESSIVES) if mine else lx.THE
        return NounPhrase(key, noun, gender, determiner, self.adjectives(noun, 0.1))

    def subject(self, kinds: tuple[str, ...]) -> tuple[Phrase, bool]:
        """A phrase in the nominative, and whether a negation may follow ("every" forbids it)."""
        if kinds == ("weather",):
            return clauses.pronoun_phrase(next(self.keys), lx.EXPLETIVE, "nominative"), True
        draw = self.uniform() if "person" in kinds else 1.0
        if draw < 0.34:
            self.pronoun = self.pick(lx.PRONOUNS)
            return clauses.pronoun_phrase(next(self.keys), self.pronoun, "nominative"), True
        if draw < 0.46:
            return self.name(), True
        if draw < 0.52:
            return clauses.names_joined(next(self.keys), self.name(), self.name()), True
        phrase = self.noun_phrase(kinds)
        if phrase.gender != "p" and not phrase.noun.mass and not phrase.owner and self.chance(0.1):
            return clauses.noun_in_case(phrase._replace(determiner=lx.EVERY), "nominative"), False
        return clauses.noun_in_case(phrase, "nominative"), True

    def object(
        self, kinds: tuple[str, ...], case: str, negation: int | None = None, definite: bool = False
    ) -> Phrase:
        """A phrase in `case`; `negation` is the clause's key for it, if kein may express it."""
        draw = self.uniform() if "person" in kinds else 1.0
        if draw < 0.22:
            pronoun = self.pick(lx.PRONOUNS)
            if pronoun.is_reflexive(self.pronoun):
                pronoun = lx.PRONOUNS[2]
            return clauses.pronoun_phrase(next(self.keys), pronoun, case)
        if draw < 0.34:
            return self.name()
        phrase = self.noun_phrase(kinds, definite)
        # A numeral would be denied itself; and kein is to be as common as nicht.
        numeral = phrase.determiner in lx.NUMERALS
        if negation is not None and not phrase.owner and (numeral or self.chance(0.4)):
            phrase = phrase._replace(determiner=lx.BARE if phrase.noun.mass else lx.INDEFINITE)
        return clauses.noun_in_case(phrase, case, negation)

    def prepositional(self, preposition: Preposition, kinds: tuple[str, ...]) -> Phrase:
        inner = self.object(kinds, preposition.case)
        return clauses.prepositional_phrase(next(self.keys), preposition, inner)

    def adverbial(self, options: Sequence[Adverbial]) -> Phrase:
        return clauses.adverbial_phrase(next(self.keys), self.pick(options))

    def word_for_word(self, *words: tuple[str, str]) -> Phrase:
        return clauses.word_for_word(next(self.keys), *words)

    def location(self, home: float = 0.15) -> Phrase:
        draw = self.uniform()
        if draw < home:
            return self.word_for_word(("at", "zu"), ("home", "Hause"))
        if draw < home + 0.15:
            return self.word_for_word(("in", "in"), self.pick(lx.CITIES))
        preposition = lx.LOCATIVE[0] if self.chance(0.6) else self.pick(lx.LOCATIVE)
        return self.prepositional(preposition, ("place",))

    def complements(self, verb: Verb, negation: int | None) -> tuple[list[Phrase], list[Phrase]]:
        """The objects and the prepositional phrases that the frame of `verb` asks for."""
        match verb.frame:
            case "intransitive":
                return [], [self.location()] if self.chance(0.6) else []
            case "stay":
                return [], [self.location(home=0.25)]
            case "motion":
                if self.chance(0.15):
                    return [], [self.adverbial([lx.HOMEWARD])]
                return [], [self.prepositional(self.pick(lx.DIRECTIONAL), ("place",))]
            case "journey":
                if self.chance(0.5):
                    return [], [self.word_for_word(("to", "nach"), self.pick(lx.CITIES))]
                return [], [self.prepositional(lx.DIRECTIONAL[0], ("place",))]
            case "on":
                preposition = lx.UNDER if self.chance(0.25) else lx.ON
                return [], [self.prepositional(preposition, verb.objects)]
            case "put":
                goal = self.prepositional(lx.ONTO, ("surface",))
                return [self.object(verb.objects, "accusative", negation)], [goal]
            case "prepositional":
                assert verb.preposition is not None
                return [], [self.prepositional(verb.preposition, verb.objects)]
            case "ditransitive":
                recipient = self.object(("person",), "dative", definite=True)
                return [recipient, self.object(verb.objects, "accusative", negation)], []
            case "accusative" | "dative":
                return self.transitive(verb, negation)
        return [], []

    def transitive(self, verb: Verb, negation: int | None) -> tuple[list[Phrase], list[Phrase]]:
        objects = [self.object(verb.objects, verb.frame, negation)]
        # No adjunct under nicht, which would then deny the adjunct, nor with a state.
        if not verb.auxiliary or (negation is not None and objects[0].definite):
            return objects, []
        draw = self.uniform()
        if draw < 0.12:
            return objects, [self.location()]
        if draw < 0.22 and verb.frame == "accusative":
            return objects, [self.prepositional(self.pick(lx.ACCOMPANYING), ("person",))]
        return objects, []

    def copula(self, key: int, question: bool) -> Clause:
        """Something is in some state or place."""
        tense = "past" if self.chance(0.4) else "present"
        kind = self.pick(lx.COPULA_KINDS)
        if self.chance(0.1):
            kind = "weather"
        subject, negatable = self.subject((kind,))
        if kind in ("person", "thing", "text", "clothing") and self.chance(0.3):
            state = self.location(home=0.15 if kind == "person" else 0.0)
        else:
            said = {word for word, _ in subject.english}
            adjective = self.pick([a for a in lx.ADJECTIVES_OF[kind] if a.english not in said])
            degree = [self.pick(lx.DEGREES)] if self.chance(0.45) else []
            state = self.word_for_word(*degree, (adjective.english, adjective.german))
        negated = negatable and not question and self.chance(0.25)
        return Clause(key, subject, None, tense, None, negated, places=[state])

    def verbal(self, key: int, verb: Verb, question: bool) -> Clause:
        """A clause with a full verb in some tense."""
        subject, negatable = self.subject(verb.subjects)
        tense, modal, draw = "present", None, self.uniform()
        if verb.auxiliary and draw > 0.38:
            tense = "perfect" if draw < 0.56 else "past" if draw < 0.74 else "modal"
        if verb.frame == "that" and tense != "present":
            tense = "perfect"
        if tense == "modal":
            # "May you ...?" is a wish, not a question: may, the last, stays out of questions.
            modals = lx.MODALS[:-1] if question else lx.MODALS
            modal = lx.FUTURE if verb.frame == "weather" or self.chance(0.3) else self.pick(modals)
        negatable = negatable and not question and (modal is None or modal.negatable)
        negated = negatable and self.chance(0.28)
        negation = key + clauses.NEGATION if negated else None
        objects, places = self.complements(verb, negation)
        return Clause(key, subject, verb, tense, modal, negated, objects, places)

    def clause(self, kind: str = "main") -> Clause:
        """A clause with its adverbials; `kind` is "main", "sub", "that" or "question"."""
        self.pronoun, key, question = None, next(self.keys), kind == "question"
        if kind == "that":
            clause = self.verbal(key, self.pick(lx.THAT_VERBS), question)
        elif self.chance(0.13):
            clause = self.copula(key, question)
        else:
            rain = self.chance(0.12 if kind == "sub" else 0.02)
            verbs = lx.WEATHER_VERBS if rain else lx.OTHER_VERBS
            clause = self.verbal(key, self.pick(verbs), question)
        tense = "future" if clause.modal is lx.FUTURE else clause.tense
        probability, times = lx.TIMES.get(tense, (0.0, ()))
        time = middle = None
        state = clause.verb is not None and clause.verb.auxiliary is None
        plain = clause.negated or question or state or clause.subject.english[0][0] == "every"
        if kind != "that" and self.chance(probability):
            # "not ... every day" denies the adverbial, not the clause.
            fitting = [t for t in times if t.english[0] != "every" or not clause.negated]
            time = self.adverbial(fitting)
        elif tense in lx.MIDDLES and not plain and self.chance(0.35):
            middle = self.adverbial(lx.MIDDLES[tense])
        fronted = time is not None and kind == "main" and self.chance(0.5)
        return clause._replace(time=time, middle=middle, fronted=fronted)

    def reason(self) -> Sentence:
        reason_first = self.chance(0.4)
        main = self.clause("sub" if reason_first else "main")
        return clauses.reason(main, self.clause("sub"), reason_first)

    def question(self) -> Sentence:
        clause, draw = self.clause("question"), self.uniform()
        if draw < 0.25:
            return clauses.question(clause, ("why", "warum"))
        if draw < 0.45 and clause.tense != "perfect":
            return clauses.question(clause._replace(time=None), ("when", "wann"))
        return clauses.question(clause)

    def sentence(self) -> Sentence:
        """A sentence in both languages, with its capital and its mark."""
        self.start()
        draw = self.uniform()
        self.brief = 0.15 <= draw < 0.46
        if draw < 0.15:
            return clauses.finish(self.question(), "?")
        if draw < 0.34:
            sentence = self.reason()
        elif draw < 0.46:
            sentence = clauses.report(self.clause("that"), self.clause("sub"))
        else:
            sentence = clauses.statement(self.clause())
        return clauses.finish(sentence, ".")


# --- Corpora -----------------------------------------------------------------------------------


def _target(pair: Pair) -> str:
    return pair.target


def generate(seed: int, sizes: Mapping[str, int]) -> dict[str, list[Pair]]:
    """English-German sentence pairs with gold alignments.

    Args:
      seed: any integer; equal seeds give equal corpora on every platform.
      sizes: pairs for each of the splits "train", "validation" and "test" that is wanted.

    Returns:
      The pairs of each split. No source and no target occurs twice, within or across splits.

    Raises:
      UserError: a size is negative, or more than there are different pairs.
    """
    composer = Composer(seed)

    def draw() -> list[Pair]:
        while True:
            source, target = composer.sentence()
            lengths = len(source), len(target)
            if min(lengths) >= MIN_WORDS and max(lengths) <= MAX_WORDS:
                return [align(source, target)]

    return fill(draw, _target, sizes)


def _sequences(seed: int, sizes: Mapping[str, int], step: int) -> dict[str, list[Pair]]:
    uniform = random.Random(seed).random

    def draw(shortest: int, longest: int) -> list[Pair]:
        length = shortest + int(uniform() * (longest - shortest + 1))
        words = [(LETTERS[int(uniform() * len(LETTERS))], (i,)) for i in range(length)]
        return [align(words, words[::step])]

    usual = {split: size for split, size in sizes.items() if split != "length_generalization"}
    splits = fill(lambda: draw(4, MAX_SEQUENCE), _target, usual)
    if "length_generalization" in sizes:
        twice = 2 * MAX_SEQUENCE
        longer = fill(lambda: draw(twice, twice), _target, {"test": sizes["length_generalization"]})
        splits["length_generalization"] = longer["test"]
    return splits


def copy_sequences(seed: int, sizes: Mapping[str, int]) -> dict[str, list[Pair]]:
    """Sequences of 4 to 12 letters whose target is the same; see `generate` for the rest.

    There may be a split "length_generalization", of sequences of 24 letters.
    """
    return _sequences(seed, sizes, 1)


def reverse_sequences(seed: int, sizes: Mapping[str, int]) -> dict[str, list[Pair]]:
    """As `copy_sequences`, but with the target reversed."""
    return _sequences(seed, sizes, -1)
