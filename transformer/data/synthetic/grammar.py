"""The built-in corpora: English-German sentences from a grammar, and two toy sequence tasks.

Every sentence is sampled as one meaning structure and written in both languages, so the German
sentence is a function of the English sentence. These phenomena are hard to translate: agreement
inside the noun phrase, verb-second and verb-final order, separable verbs, the verb bracket of
perfect and modals, "nicht" versus "kein", case governed by verbs and prepositions, and genitives.

Words that express the same piece of meaning have alignment links, and every word has a link. The
links are: "does" to the finite German verb, a simple past ("bought") to both "hat" and "gekauft",
the particle of "picks up" to the prefix ("ab"), "not" to "nicht" or "kein" (which is also linked to
"a" or "any"), "wants to" to "will", "of" and "the" to "des", "man's" to "Mannes" and to the article
that 's represents, and "in the" to "im".
"""

import random
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TypeVar

from transformer.data.pairs import Pair
from transformer.data.synthetic import clauses, fill
from transformer.data.synthetic.clauses import Clause, Part, Phrase, Piece, fixed, joined

Option = TypeVar("Option")

MIN_WORDS, MAX_WORDS = 4, 16  # words per sentence, in both languages
MAX_SEQUENCE = 12  # letters in toy sequences for training
LETTERS = "abcdefghijklmnop"

# The probability of a time adverbial for each tense; the adverb group that is used otherwise.
TIMES = {"present": 0.3, "past": 1.0, "modal": 0.2, "future": 0.6}
MIDDLES = {"present": "frequency", "perfect": "aspect"}
# Kinds that have parts or qualities; subject kinds of copula clauses, repeated to set frequencies.
WHOLES = {"part": ("room", "building"), "quality": ("clothing", "vehicle")}
COPULA_KINDS = ("person", "person", "person", "animal", "food", "drink", "text", "thing")
COPULA_KINDS += ("clothing", "vehicle", "device", "part", "place", "surface")


class Composer:
    """Samples sentences; the probabilities here set the frequency of each phenomenon."""

    def __init__(self, seed: int):
        self.uniform = random.Random(seed).random
        self.used: list[object] = []  # nouns and names in the sentence so far
        self.brief = False  # whether the sentence has two clauses
        self.pronoun: clauses.Pronoun | None = None  # the subject of the clause, if it is a pronoun
        self.parts: list[Part] = []  # of the sentence

    def chance(self, probability: float) -> bool:
        return self.uniform() < probability

    def pick(self, options: Sequence[Option]) -> Option:
        return options[int(self.uniform() * len(options))]

    def new(self, options: Sequence[Option], tries: int = 3) -> Option:
        """Returns an option that is not yet in the sentence, unless several tries fail."""
        option = self.pick(options)
        if tries and option in self.used:
            return self.new(options, tries - 1)
        self.used.append(option)
        return option

    def fixed(self, group: str) -> Phrase:
        return fixed(*self.pick(clauses.FIXED[group]))

    def name(self) -> Phrase:
        name = self.new(clauses.NAMES)
        return fixed(name, name)._replace(definite=True)

    def adjectives(self, noun: clauses.Noun, probability: float) -> list[clauses.Adjective]:
        if not self.chance(probability):
            return []
        first, second = (self.pick(clauses.ADJECTIVES_OF[noun.kinds[0]]) for _ in range(2))
        # Only a colour follows another adjective, so that both languages have the same order.
        both = "color" in second.kinds and "color" not in first.kinds
        return [first, second] if both else [first]

    def owner(self, kinds: clauses.Kinds) -> Phrase:
        """Returns a genitive: "the" or a possessive, rarely an adjective, and a noun."""
        noun = self.new(clauses.nouns_of(kinds))
        plural = self.chance(0.2)
        mine = "unowned" not in noun.kinds and self.chance(0.3)
        determiner = self.pick(clauses.POSSESSIVES) if mine else clauses.THE
        return clauses.noun_phrase(noun, plural, determiner, self.adjectives(noun, 0.1), "genitive")

    def noun_phrase(
        self, kinds: clauses.Kinds, case: str, negation: Piece | None = None, definite: bool = False
    ) -> Phrase:
        """Samples a noun phrase of one of `kinds`, with a determiner, adjectives and an owner."""
        noun = self.new(clauses.nouns_of(kinds))
        plural = bool(noun.plural) and self.chance(0.1 if "place" in kinds else 0.25)
        indefinite = clauses.INDEFINITE if noun.plural and not plural else clauses.BARE
        ownable, whole = "unowned" not in noun.kinds, WHOLES.get(noun.kinds[0])
        determiner, owner, of, draw = clauses.THE, None, bool(whole), self.uniform()
        if whole and self.chance(0.6):
            owner = self.owner(whole)
        elif draw < 0.08 and ownable:
            if self.chance(0.3):
                determiner = clauses.GENITIVES[self.new(clauses.NAMES)]
            else:
                owner = self.owner(("person",))
                of = owner.person == "p"
        elif draw < 0.26 and ownable:
            determiner = self.pick(clauses.POSSESSIVES)
        elif draw < 0.36:
            determiner = clauses.THIS
        elif draw < 0.44 and plural:
            determiner = self.pick(clauses.NUMERALS)
        elif draw >= 0.66 and not definite:
            determiner = indefinite
        adjectives = self.adjectives(noun, 0.3 if self.brief else 0.5)
        if not owner and determiner not in clauses.GENITIVES.values():
            one = case == "nominative" and noun.plural and not plural
            if one and self.chance(0.1):
                determiner = clauses.EVERY
            # "nicht" would negate a numeral itself, and "kein" should be as common as "nicht".
            elif negation and (determiner in clauses.NUMERALS or self.chance(0.4)):
                determiner = indefinite
        return clauses.noun_phrase(noun, plural, determiner, adjectives, case, owner, of, negation)

    def phrase(
        self, kinds: clauses.Kinds, case: str, negation: Piece | None = None, definite: bool = False
    ) -> Phrase:
        """Samples a subject or object, in which "kein" may express the clause's `negation`."""
        draw, nominative = self.uniform() if "person" in kinds else 1.0, case == "nominative"
        if draw < (0.34 if nominative else 0.22) or kinds == ("weather",):
            pronoun = self.pick(clauses.PRONOUNS) if kinds != ("weather",) else clauses.EXPLETIVE
            both = {pronoun.subject, self.pronoun and self.pronoun.subject}
            if not nominative and (both <= {"I", "we"} or both == {"you"}):
                pronoun = clauses.PRONOUNS[2]  # instead of "we see me", "you see you"
            self.pronoun = pronoun if nominative else self.pronoun
            words = fixed(pronoun.subject if nominative else pronoun.object, getattr(pronoun, case))
            return words._replace(person=pronoun.person, definite=True, pronoun=True)
        if draw < (0.46 if nominative else 0.34):
            return self.name()
        if draw < 0.52 and nominative:
            names = joined(self.name(), fixed("and", "und"), self.name())
            return names._replace(person="p", definite=True)
        return self.noun_phrase(kinds, case, negation, definite)

    def prepositional(self, preposition: list[str], *kinds: str) -> Phrase:
        english, german, case = preposition
        return joined(fixed(english, german, "0,0"), self.phrase(kinds, case))

    def location(self, home: float = 0.15) -> Phrase:
        draw, prepositions = self.uniform(), clauses.PREPOSITIONS["location"]
        if draw < home:
            return fixed("at home", "zu Hause")
        if draw < home + 0.15:
            return joined(fixed("in", "in"), self.fixed("city"))
        preposition = prepositions[0] if self.chance(0.6) else self.pick(prepositions)
        return self.prepositional(preposition, "place")

    def places(self, verb: clauses.Verb) -> list[Phrase]:
        """Returns the place and prepositional phrases that the frame of `verb` requires."""
        frame = verb.frame
        if frame == "stay" or (frame == "intransitive" and self.chance(0.6)):
            return [self.location(home=0.25 if frame == "stay" else 0.15)]
        if frame == "motion" and self.chance(0.15):
            return [self.fixed("homeward")]
        if frame == "journey" and self.chance(0.5):
            return [joined(fixed("to", "nach"), self.fixed("city"))]
        group = "under" if frame == "on" and self.chance(0.25) else frame
        options = clauses.PREPOSITIONS.get(verb.base if frame == "prepositional" else group, [])
        if frame == "motion":
            options = [self.pick(options)]
        kinds = ("surface",) if frame == "put" else verb.objects
        return [self.prepositional(preposition, *kinds) for preposition in options]

    def complements(self, verb: clauses.Verb, negation: Piece | None) -> tuple[list[Phrase], ...]:
        """Returns the objects of `verb`, and its place and prepositional phrases."""
        objects, places, frame = [], self.places(verb), verb.frame
        if frame == "ditransitive":
            objects.append(self.phrase(("person",), "dative", definite=True))
        if frame in ("accusative", "dative", "ditransitive", "put"):
            case = "dative" if frame == "dative" else "accusative"
            objects.append(self.phrase(verb.objects, case, negation))
        # Stative verbs get no adjunct. After "nicht", an adjunct would be negated itself.
        denied = negation and objects and objects[0].definite
        if frame in ("accusative", "dative") and verb.auxiliary and not denied:
            draw = self.uniform()
            if draw < 0.12:
                places = [self.location()]
            elif draw < 0.22 and frame == "accusative":
                places = [self.prepositional(self.pick(clauses.PREPOSITIONS["company"]), "person")]
        return objects, places

    def copula(self, question: bool) -> Clause:
        tense = "past" if self.chance(0.4) else "present"
        kind = self.pick(COPULA_KINDS)
        kind = "weather" if self.chance(0.1) else kind
        subject = self.phrase((kind,), "nominative")
        if kind in ("person", "thing", "text", "clothing") and self.chance(0.3):
            state = self.location(home=0.15 if kind == "person" else 0.0)
        else:
            words = [word for word, _ in subject.english]
            adjective = self.pick(
                [a for a in clauses.ADJECTIVES_OF[kind] if a.english not in words]
            )
            degree = [self.fixed("degree")] if self.chance(0.45) else []
            state = joined(*degree, fixed(adjective.english, adjective.german))
        negated = subject.negatable and not question and self.chance(0.25)
        return Clause(subject, None, tense, None, Piece() if negated else None, places=[state])

    def verbal(self, verbs: Sequence[clauses.Verb], question: bool) -> Clause:
        verb = self.pick(verbs)
        subject = self.phrase(verb.subjects, "nominative")
        tense, modal, draw = "present", None, self.uniform()
        if verb.auxiliary and draw > 0.38:
            tense = "perfect" if draw < 0.56 else "past" if draw < 0.74 else "modal"
        if verb.frame == "that" and tense != "present":
            tense = "perfect"
        if tense == "modal":
            # "May you ...?" is a wish, not a question, so questions exclude may, the last modal.
            modals = clauses.MODALS[:-1] if question else clauses.MODALS
            future = verb.frame == "weather" or self.chance(0.3)
            tense, modal = ("future", clauses.FUTURE) if future else (tense, self.pick(modals))
        must = modal and modal.english == "must"  # "must not" is not "muss nicht"
        negatable = subject.negatable and not question and not must
        negation = Piece() if negatable and self.chance(0.28) else None
        objects, places = self.complements(verb, negation)
        return Clause(subject, verb, tense, modal, negation, objects, places)

    def clause(self, kind: str = "main") -> Clause:
        """Returns a clause with its adverbials; `kind` is "main", "sub", "that" or "question"."""
        self.pronoun, question = None, kind == "question"
        if kind == "that":
            clause = self.verbal(clauses.THAT_VERBS, question)
        elif self.chance(0.13):
            clause = self.copula(question)
        else:
            rain = self.chance(0.12 if kind == "sub" else 0.02)
            clause = self.verbal(clauses.WEATHER_VERBS if rain else clauses.OTHER_VERBS, question)
        subject, verb, negation = clause.subject, clause.verb, clause.negation
        if kind != "that" and self.chance(TIMES.get(clause.tense, 0.0)):
            times = clauses.FIXED["present" if clause.tense == "modal" else clause.tense]
            # "not ... every day" negates the adverbial, not the clause.
            time = self.pick([t for t in times if t[0] != "every day" or not negation])
            fronted = kind == "main" and self.chance(0.5)
            return clause._replace(time=[fixed(*time)], fronted=fronted)
        plain = negation or question or not subject.negatable or (verb and not verb.auxiliary)
        if clause.tense in MIDDLES and not plain and self.chance(0.35):
            return clause._replace(middle=[self.fixed(MIDDLES[clause.tense])])
        return clause

    def question(self) -> list[Part]:
        clause, draw, word = self.clause("question"), self.uniform(), []
        if draw < 0.25:
            word = [fixed("why", "warum")]
        elif draw < 0.45 and clause.tense != "perfect":
            word, clause = [fixed("when", "wann")], clause._replace(time=())
        return [*word, clause._replace(order="first", question=True)]

    def sentence(self) -> Pair:
        """Returns a sentence in both languages, with capitals and final punctuation."""
        draw = self.uniform()
        self.used, self.brief = [], 0.15 <= draw < 0.46
        if draw < 0.15:
            parts = self.question()
        elif draw < 0.34:
            sub_first = self.chance(0.4)
            main = self.clause("sub" if sub_first else "main")
            link, sub = fixed("because", "weil"), self.clause("sub")
            parts = clauses.subordinate(main, link, sub, sub_first)
        elif draw < 0.46:
            main, link = self.clause("that"), fixed("that", "dass")
            parts = clauses.subordinate(main, link, self.clause("sub"))
        else:
            parts = [self.clause()]
        mark = [("?" if draw < 0.15 else ".", ())]
        self.parts = [*parts, Phrase(mark, mark)]
        pair = clauses.align(*self.parts)
        fits = all(MIN_WORDS <= len(text.split()) <= MAX_WORDS for text in pair[:2])
        return pair if fits else self.sentence()


def generate(seed: int, sizes: Mapping[str, int]) -> dict[str, list[Pair]]:
    """Returns distinct English-German pairs with gold alignments for each split in `sizes`."""
    composer = Composer(seed)
    return fill(lambda: [composer.sentence()], attrgetter("target"), sizes)


def copy_sequences(seed: int, sizes: Mapping[str, int], step: int = 1) -> dict[str, list[Pair]]:
    """Returns pairs of equal sequences of 4 to 12 letters, with reversed targets if `step` is -1.

    The optional split "length_generalization" has sequences of 24 letters. For `sizes`, see `fill`.
    """
    uniform = random.Random(seed).random

    def draw(shortest: int, longest: int) -> list[Pair]:
        length = shortest + int(uniform() * (longest - shortest + 1))
        letters = [LETTERS[int(uniform() * len(LETTERS))] for _ in range(length)]
        links = tuple(zip(range(length), range(length)[::step], strict=True))
        return [Pair(" ".join(letters), " ".join(letters[::step]), links)]

    sizes, longest = dict(sizes), 2 * MAX_SEQUENCE
    size = sizes.pop("length_generalization", None)
    splits = fill(lambda: draw(4, MAX_SEQUENCE), attrgetter("target"), sizes)
    if size is not None:
        longer = fill(lambda: draw(longest, longest), attrgetter("target"), {"test": size})
        splits["length_generalization"] = longer["test"]
    return splits


def reverse_sequences(seed: int, sizes: Mapping[str, int]) -> dict[str, list[Pair]]:
    """Returns the pairs of `copy_sequences` with reversed targets."""
    return copy_sequences(seed, sizes, -1)
