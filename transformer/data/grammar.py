"""The embedded corpus: a generated English-German grammar, and two toy sequence tasks.

Every sentence is drawn as one structure of meaning and spelled out twice, so German is a function
of English by construction. The phenomena are those that make German hard to translate into:
agreement inside the noun phrase, verb-second and verb-final order, separable verbs, the verb
bracket of perfect and modals, nicht against kein, case from verbs and prepositions, genitives.

Alignment. Each word carries the keys of the pieces of meaning it expresses; two words are linked
where they share one. So an article links to its article, "does" to the finite German verb, "has" to
"hat", a simple past ("bought") to both "hat" and "gekauft", "calls" to both parts of "ruft ... an",
the particle of "picks up" to the prefix ("ab"), "not" to "nicht" or "kein", which also links to "a"
or "any", "wants to" to "will", "of" and "the" to "des", "man's" to "Mannes" and to the article that
's stands for, and "in the" to "im". Every word has a link.

Splits. A stable hash of its German text puts a pair into its split, so pairs with equal targets,
and hence those with equal sources, meet in one split, which keeps the first. Each split is the
first n of its pairs in one endless stream: its size changes neither the others nor its beginning.

Source: M. Durrell, "Hammer's German Grammar and Usage", the chapters on adjectives (endings) and
word order (the verbal bracket, objects and adverbials in the central section, place of nicht).
"""

import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from transformer.data import lexicon as lx
from transformer.data.pairs import Pair

Word = tuple[str, tuple[int, ...]]  # text, and the keys of what it expresses
Option = TypeVar("Option")

# A piece of meaning is (constituent's key) + (role in it); constituents are numbered by STEP.
STEP = 8
DETERMINER, NOUN, OF, ADJECTIVES = 0, 1, 2, 3
AUXILIARY, VERB, PARTICLE, NEGATION, CONJUNCTION = 0, 1, 2, 3, 4

SHORTEST, LONGEST = 4, 16  # words a sentence, in both languages
LARGEST = 1_000_000  # pairs a split: beyond it repetition makes the draw slow
SPLIT_OF_HASH = ("test", "validation") + ("train",) * 18

LETTERS = "abcdefghijklmnop"
ADJECTIVES_OF = {
    kind: [adjective for adjective in lx.ADJECTIVES if kind in adjective.kinds]
    for kind in {kind for adjective in lx.ADJECTIVES for kind in adjective.kinds}
}
WHOLES = {"part": ("place",), "quality": ("clothing", "vehicle")}  # what has the roof, the price
NOUNS_OF = {
    kinds: [noun for noun in lx.NOUNS if not set(kinds).isdisjoint(noun.kinds)]
    for kinds in {verb.objects for verb in lx.VERBS}
    | {verb.subjects for verb in lx.VERBS}
    | {(kind,) for noun in lx.NOUNS for kind in noun.kinds}
    | set(WHOLES.values())
}
VERBS = [verb for verb in lx.VERBS if verb.frame not in ("that", "weather")]
THAT_VERBS = [verb for verb in lx.VERBS if verb.frame == "that"]
WEATHER_VERBS = [verb for verb in lx.VERBS if verb.frame == "weather"]


# --- Phrases -----------------------------------------------------------------------------------


class Phrase(NamedTuple):
    """A constituent in both languages."""

    english: list[Word]
    german: list[Word]
    person: str = "3s"
    definite: bool = False
    pronoun: bool = False


class NounPhrase(NamedTuple):
    """A noun with what agrees with it; `gender` is "p" in the plural, whatever the noun's.

    `owner` is a genitive: a name ("Anna's"), or a noun phrase, with 's or, where `of`, with "of".
    """

    key: int
    noun: lx.Noun
    gender: str
    determiner: lx.Determiner
    adjectives: tuple[lx.Adjective, ...] = ()
    owner: "NounPhrase | str | None" = None
    of: bool = False


def adjective_ending(case: str, gender: str, determiner_ending: str) -> str:
    """The ending of an adjective: strong unless the determiner already shows the strong ending."""
    if determiner_ending:
        direct = case == "nominative" or (case == "accusative" and gender in "fn")
        return "e" if direct and gender != "p" else "en"
    if case == "genitive" and gender in "mn":
        return "en"
    return lx.STRONG[case][lx.GENDERS.index(gender)]


def _spread(text: str, *keys: int) -> list[Word]:
    return [(word, keys) for word in text.split()]


def english_noun_phrase(phrase: NounPhrase) -> list[Word]:
    """The English words of `phrase`."""
    key, noun, plural = phrase.key, phrase.noun, phrase.gender == "p"
    inner = [(a.english, (key + ADJECTIVES + i,)) for i, a in enumerate(phrase.adjectives)]
    inner += _spread(noun.plural if plural else noun.singular, key + NOUN)
    owner = phrase.owner
    if isinstance(owner, str):
        return [(owner + "'s", (key + DETERMINER,)), *inner]
    if owner and not phrase.of:
        *words, (text, keys) = english_noun_phrase(owner)
        return [*words, (text + "'s", (*keys, key + DETERMINER)), *inner]
    article = phrase.determiner.plural if plural else phrase.determiner.singular
    if article == "a" and inner[0][0][0] in "aeiou":
        article = "an"
    words = [(article, (key + DETERMINER,)), *inner] if article else inner
    return [*words, ("of", (key + OF,)), *english_noun_phrase(owner)] if owner else words


def german_noun_phrase(phrase: NounPhrase, case: str, negation: int | None = None) -> list[Word]:
    """The German words of `phrase`; `negation` is the key that kein expresses beside its own."""
    key, gender, owner = phrase.key, phrase.gender, phrase.owner
    form, ending = phrase.determiner.forms[case, gender]
    if isinstance(owner, str):
        form, ending = owner + "s", ""
    keys = (key + DETERMINER,) if negation is None else (key + DETERMINER, negation)
    words: list[Word] = [(form, keys)] if form else []
    if phrase.adjectives:
        suffix = adjective_ending(case, gender, ending)
        for i, adjective in enumerate(phrase.adjectives):
            words.append((adjective.stem + suffix, (key + ADJECTIVES + i,)))
    words.append((phrase.noun.forms[case, gender], (key + NOUN,)))
    if isinstance(owner, NounPhrase):
        (article, article_keys), *rest = german_noun_phrase(owner, "genitive")
        words += [(article, (*article_keys, key + OF) if phrase.of else article_keys), *rest]
    return words


def noun_in_case(phrase: NounPhrase, case: str, negation: int | None = None) -> Phrase:
    """`phrase` spelled out; under a `negation` an indefinite one becomes "any", German kein."""
    determiner = phrase.determiner
    if determiner not in (lx.INDEFINITE, lx.BARE):
        negation = None
    elif negation is not None:
        phrase = phrase._replace(determiner=lx.NO_MASS if phrase.noun.mass else lx.NO)
    return Phrase(
        english_noun_phrase(phrase),
        german_noun_phrase(phrase, case, negation),
        "p" if phrase.gender == "p" else "3s",
        determiner.definite,
    )


def prepositional_phrase(key: int, preposition: lx.Preposition, phrase: Phrase) -> Phrase:
    """The preposition and `phrase`, which is in its case; an article may contract: im, zur."""
    (first, keys), *rest = phrase.german
    contraction = lx.CONTRACTIONS.get((preposition.german, first))
    if contraction:
        german: list[Word] = [(contraction, (key, *keys)), *rest]
    else:
        german = [(preposition.german, (key,)), *phrase.german]
    return Phrase([*_spread(preposition.english, key), *phrase.english], german)


def adverbial_phrase(key: int, adverbial: lx.Adverbial) -> Phrase:
    """A fixed adverbial, linked as the lexicon says; link n expresses key + n."""
    links = list(enumerate(adverbial.links))
    english, german = (
        [(w, tuple(key + n for n, link in links if link[side] == i)) for i, w in enumerate(words)]
        for side, words in enumerate((adverbial.english, adverbial.german))
    )
    return Phrase(english, german)


# --- Clauses -----------------------------------------------------------------------------------


class Clause(NamedTuple):
    """What a clause says; `english_clause` and `german_clause` put it into words.

    `tense` is "present", "perfect", "past" or "modal"; a `verb` of None is the copula. `kein` says
    that the negation is inside an object. `middle` is a single adverb such as "often".
    """

    key: int
    subject: Phrase
    verb: lx.Verb | None
    tense: str = "present"
    modal: lx.Modal | None = None
    negated: bool = False
    kein: bool = False
    objects: Sequence[Phrase] = ()
    places: Sequence[Phrase] = ()
    time: Phrase | None = None
    middle: Phrase | None = None
    fronted: bool = False


def _english_verb(clause: Clause, support: bool) -> tuple[list[Word], list[Word]]:
    """The auxiliary, if any, and the other verbs; `support` calls for do in its absence."""
    verb, tense, person = clause.verb, clause.tense, clause.subject.person
    auxiliary, lexical, particle = (clause.key + role for role in (AUXILIARY, VERB, PARTICLE))
    if verb is None:
        form = (lx.WAS if tense == "past" else lx.BE)[person]
        return [(form, (auxiliary, lexical, particle))], []
    third = person == "3s"
    own = (lexical,) if verb.particle else (lexical, particle)
    after: list[Word] = _spread(verb.particle, particle)
    base: list[Word] = [(verb.base, own), *after]
    do = [("did" if tense == "past" else "does" if third else "do", (auxiliary,))]
    if clause.modal:
        if not clause.modal.to:
            return [(clause.modal.english, (auxiliary,))], base
        inflected = clause.modal.english + ("s" if third and not support else "")
        rest = [(inflected, (auxiliary,)), ("to", (auxiliary,)), *base]
        return (do if support else []), rest
    if tense == "perfect":
        return [("has" if third else "have", (auxiliary,))], [(verb.past_participle, own), *after]
    if support:
        return do, base
    form = verb.past if tense == "past" else verb.third if third else verb.base
    return [], [(form, (auxiliary, *own)), *after]


def english_clause(clause: Clause, question: bool = False) -> list[Word]:
    """The words of a clause, in statement order or with the auxiliary first."""
    finite, rest = _english_verb(clause, clause.negated or question)
    negation: list[Word] = [("not", (clause.key + NEGATION,))] if clause.negated else []
    if clause.negated and finite[0][0] == "can":
        finite, negation = [("cannot", (*finite[0][1], clause.key + NEGATION))], []
    subject = clause.subject.english
    words = finite + subject if question else subject + finite
    words += negation
    if clause.middle:
        words += clause.middle.english
    objects = [word for phrase in clause.objects for word in phrase.english]
    if clause.verb and clause.verb.splits and clause.objects[0].pronoun:
        words += [*rest[:-1], *objects, rest[-1]]
    else:
        words += rest + objects
    for phrase in clause.places:
        words += phrase.english
    if clause.time:
        words = clause.time.english + words if clause.fronted else words + clause.time.english
    return words


def _german_verb(clause: Clause, final: bool) -> tuple[Word, list[Word]]:
    """The finite verb, and what closes the bracket: infinitive, participle or prefix."""
    verb, person = clause.verb, clause.subject.person
    auxiliary, lexical, particle = (clause.key + role for role in (AUXILIARY, VERB, PARTICLE))
    if verb is None:
        form = (lx.WAR if clause.tense == "past" else lx.SEIN)[person]
        return (form, (auxiliary, lexical, particle)), []
    if clause.modal:
        finite = (clause.modal.present[person], (auxiliary,))
        return finite, [(verb.infinitive, (lexical, particle))]
    if clause.tense != "present":
        assert verb.auxiliary is not None  # the tense was chosen for the verb
        return (verb.auxiliary[person], (auxiliary,)), [(verb.participle, (lexical, particle))]
    form = verb.present[person]
    if verb.prefix and not final:
        return (form, (auxiliary, lexical)), [(verb.prefix, (particle,))]
    return (verb.prefix + form, (auxiliary, lexical, particle)), []


def german_clause(clause: Clause, order: str) -> list[Word]:
    """The words of a clause whose finite verb comes "first", "second" or "final".

    Within the bracket: subject, definite objects, time, adverb, nicht, other objects, place.
    """
    finite, rest = _german_verb(clause, order == "final")
    middle = [word for phrase in clause.objects if phrase.definite for word in phrase.german]
    if clause.time and not clause.fronted:
        middle += clause.time.german
    if clause.middle:
        middle += clause.middle.german
    if clause.negated and not clause.kein:
        middle.append(("nicht", (clause.key + NEGATION,)))
    for phrase in clause.objects:
        if not phrase.definite:
            middle += phrase.german
    for phrase in clause.places:
        middle += phrase.german
    subject = clause.subject.german
    if order == "second" and not clause.fronted:
        return [*subject, finite, *middle, *rest]
    if clause.objects and clause.objects[0].pronoun and not clause.subject.definite:
        # An unstressed pronoun comes before a new subject: "Gestern hat mir ein Mann geholfen."
        middle = [middle[0], *subject, *middle[1:]]
    else:
        middle = subject + middle
    if order == "final":
        return [*middle, *rest, finite]
    field = clause.time.german if clause.time and clause.fronted else []
    return [*field, finite, *middle, *rest]


# --- Composition: what is said, drawn at random --------------------------------------------------

TIMES = {
    "present": (0.35, lx.PRESENT_TIMES),
    "past": (1.0, lx.PAST_TIMES),
    "modal": (0.25, lx.PRESENT_TIMES),
    "future": (0.6, lx.FUTURE_TIMES),
}
MIDDLES = {"present": lx.FREQUENCIES, "perfect": lx.ASPECTS}
COPULA_KINDS = ("person", "person", "person", "animal", "food", "drink", "text", "thing")
COPULA_KINDS += ("clothing", "vehicle", "device", "part", "place", "surface")
FIRST_PERSON = ("I", "we")


class _Composer:
    """Draws sentences; the probabilities in it are what gives each phenomenon its share."""

    def __init__(self, seed: int):
        self.uniform = random.Random(seed).random
        self.start()

    def start(self) -> None:
        """Forgets the last sentence."""
        self.key = 0
        self.brief = False  # in sentences of two clauses
        self.used: list[lx.Noun | str] = []
        self.pronoun: lx.Pronoun | None = None  # the subject, where it is one

    def chance(self, probability: float) -> bool:
        return self.uniform() < probability

    def pick(self, options: Sequence[Option]) -> Option:
        return options[int(self.uniform() * len(options))]

    def new(self, options: Sequence[Option]) -> Option:
        """An option that the sentence does not have yet, if a few tries find one."""
        for _ in range(4):
            option = self.pick(options)
            if option not in self.used:
                break
        self.used.append(option)
        return option

    def next_key(self) -> int:
        self.key += STEP
        return self.key

    # Phrases

    def name(self) -> Phrase:
        name = self.new(lx.NAMES)
        word = [(name, (self.next_key(),))]
        return Phrase(word, word, definite=True)

    def noun_phrase(self, kinds: tuple[str, ...], definite: bool = False) -> NounPhrase:
        """A noun of one of the kinds, with determiner, adjectives and owner as chance has it."""
        noun, key = self.new(NOUNS_OF[kinds]), self.next_key()
        plural = not noun.mass and self.chance(0.12 if "place" in kinds else 0.3)
        ownable = "unowned" not in noun.kinds
        owner, of, draw = None, False, self.uniform()
        if noun.kinds[0] in WHOLES and self.chance(0.6):
            owner, of, determiner = self.owner(WHOLES[noun.kinds[0]]), True, lx.THE
        elif draw < 0.1 and ownable:
            owner, determiner = self.owner(("person",)), lx.THE
            of = isinstance(owner, NounPhrase) and owner.gender == "p"
        elif draw < 0.28 and ownable:
            determiner = self.pick(lx.POSSESSIVES)
        elif draw < 0.36:
            determiner = lx.THIS
        elif draw < 0.44 and plural:
            determiner = self.pick(lx.NUMERALS)
        elif draw < 0.66 or definite:
            determiner = lx.THE
        else:
            determiner = lx.BARE if noun.mass else lx.INDEFINITE
        adjectives = self.adjectives(noun, 0.4 if self.brief else 0.55)
        gender = "p" if plural else noun.gender
        return NounPhrase(key, noun, gender, determiner, adjectives, owner, of)

    def adjectives(self, noun: lx.Noun, share: float) -> tuple[lx.Adjective, ...]:
        if not self.chance(share):
            return ()
        first, second = (self.pick(ADJECTIVES_OF[noun.kinds[0]]) for _ in range(2))
        # Only a colour follows another adjective: the order is the same in both languages.
        return (first, second) if second.color and not first.color else (first,)

    def owner(self, kinds: tuple[str, ...]) -> NounPhrase | str:
        """A genitive; only "the" and possessives come before its noun, and rarely an adjective."""
        if kinds == ("person",) and self.chance(0.3):
            return self.new(lx.NAMES)
        noun, key = self.new(NOUNS_OF[kinds]), self.next_key()
        gender = "p" if self.chance(0.25) else noun.gender
        mine = "unowned" not in noun.kinds and self.chance(0.3)
        determiner = self.pick(lx.POSSESSIVES) if mine else lx.THE
        return NounPhrase(key, noun, gender, determiner, self.adjectives(noun, 0.2))

    def subject(self, kinds: tuple[str, ...]) -> tuple[Phrase, bool]:
        """A phrase in the nominative, and whether a negation may follow ("every" forbids it)."""
        draw = self.uniform() if "person" in kinds else 1.0
        if draw < 0.28:
            self.pronoun = pronoun = self.pick(lx.PRONOUNS)
            key = (self.next_key(),)
            english, german = [(pronoun.subject, key)], [(pronoun.nominative, key)]
            return Phrase(english, german, pronoun.person, definite=True, pronoun=True), True
        if draw < 0.4:
            return self.name(), True
        if draw < 0.46:
            one, other, key = self.name(), self.name(), (self.next_key(),)
            english = [*one.english, ("and", key), *other.english]
            german = [*one.german, ("und", key), *other.german]
            return Phrase(english, german, "p", definite=True), True
        phrase = self.noun_phrase(kinds)
        if phrase.gender != "p" and not phrase.noun.mass and not phrase.owner and self.chance(0.1):
            return noun_in_case(phrase._replace(determiner=lx.EVERY), "nominative"), False
        return noun_in_case(phrase, "nominative"), True

    def object(
        self,
        kinds: tuple[str, ...],
        case: str,
        negation: int | None = None,
        definite: bool = False,
    ) -> Phrase:
        """A phrase in `case`; `negation` is the clause's key for it, where kein may express it."""
        draw = self.uniform() if "person" in kinds else 1.0
        if draw < 0.22:
            pronoun, subject = self.pick(lx.PRONOUNS), self.pronoun
            both_first = subject and {subject.subject, pronoun.subject} <= set(FIRST_PERSON)
            # "I see me", "you see you" would need a reflexive pronoun.
            if both_first or (subject == pronoun and pronoun.person == "2s"):
                pronoun = lx.PRONOUNS[2]
            key = (self.next_key(),)
            english, german = [(pronoun.object, key)], [(getattr(pronoun, case), key)]
            return Phrase(english, german, pronoun.person, definite=True, pronoun=True)
        if draw < 0.34:
            return self.name()
        phrase = self.noun_phrase(kinds, definite)
        # A numeral would be denied itself; and kein is to be as common as nicht.
        numeral = phrase.determiner in lx.NUMERALS
        if negation is not None and not phrase.owner and (numeral or self.chance(0.4)):
            phrase = phrase._replace(determiner=lx.BARE if phrase.noun.mass else lx.INDEFINITE)
        return noun_in_case(phrase, case, negation)

    def prepositional(self, preposition: lx.Preposition, kinds: tuple[str, ...]) -> Phrase:
        inner = self.object(kinds, preposition.case)
        return prepositional_phrase(self.next_key(), preposition, inner)

    def adverbial(self, options: Sequence[lx.Adverbial]) -> Phrase:
        return adverbial_phrase(self.next_key(), self.pick(options))

    def word_for_word(self, *words: tuple[str, str]) -> Phrase:
        """A fixed phrase of (English, German) words."""
        key = self.next_key()
        english, german = (
            [(pair[side], (key + i,)) for i, pair in enumerate(words)] for side in (0, 1)
        )
        return Phrase(english, german)

    def location(self, home: float = 0.15) -> Phrase:
        draw = self.uniform()
        if draw < home:
            return self.word_for_word(("at", "zu"), ("home", "Hause"))
        if draw < home + 0.15:
            return self.word_for_word(("in", "in"), self.pick(lx.CITIES))
        inside = lx.LOCATIVE[0]
        preposition = inside if self.chance(0.6) else self.pick(lx.LOCATIVE)
        return self.prepositional(preposition, ("place",))

    # Clauses

    def complements(self, verb: lx.Verb, negation: int | None) -> tuple[list[Phrase], list[Phrase]]:
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

    def transitive(self, verb: lx.Verb, negation: int | None) -> tuple[list[Phrase], list[Phrase]]:
        objects = [self.object(verb.objects, verb.frame, negation)]
        # No adjunct under nicht, which would then deny the adjunct, nor with a state.
        if not verb.auxiliary or (negation is not None and objects[0].definite):
            return objects, []
        draw = self.uniform()
        if draw < 0.15:
            return objects, [self.location()]
        if draw < 0.3:
            return objects, [self.prepositional(self.pick(lx.ACCOMPANYING), ("person",))]
        return objects, []

    def copula(self, key: int, question: bool) -> Clause:
        """Something is in some state or place."""
        tense = "past" if self.chance(0.4) else "present"
        kind = self.pick(COPULA_KINDS)
        if self.chance(0.1):
            kind, subject, negatable = "weather", self.expletive(), True
        else:
            subject, negatable = self.subject((kind,))
        if kind in ("person", "thing", "text", "clothing") and self.chance(0.3):
            state = self.location(home=0.15 if kind == "person" else 0.0)
        else:
            said = {word for word, _ in subject.english}
            adjectives = [a for a in ADJECTIVES_OF[kind] if a.english not in said]
            adjective = self.pick(adjectives)
            degree = [self.pick(lx.DEGREES)] if self.chance(0.45) else []
            state = self.word_for_word(*degree, (adjective.english, adjective.german))
        negated = negatable and not question and self.chance(0.25)
        return Clause(key, subject, None, tense, None, negated, places=[state])

    def expletive(self) -> Phrase:
        key = (self.next_key(),)
        return Phrase([("it", key)], [("es", key)], definite=True, pronoun=True)

    def verbal(self, key: int, verb: lx.Verb, question: bool) -> Clause:
        """A clause with a full verb in some tense."""
        weather = verb.frame == "weather"
        subject, negatable = (self.expletive(), True) if weather else self.subject(verb.subjects)
        tense, modal, draw = "present", None, self.uniform()
        if verb.auxiliary and draw > 0.38:
            tense = "perfect" if draw < 0.56 else "past" if draw < 0.74 else "modal"
        if verb.frame == "that" and tense != "present":
            tense = "perfect"
        if tense == "modal":
            # "May you ...?" is a wish, not a question: may, the last, stays out of questions.
            modals = lx.MODALS[:-1] if question else lx.MODALS
            modal = lx.FUTURE if weather or self.chance(0.3) else self.pick(modals)
        negatable = negatable and not question and (modal is None or modal.negatable)
        negated = negatable and self.chance(0.28)
        negation = key + NEGATION if negated else None
        objects, places = self.complements(verb, negation)
        kein = any(negation in keys for phrase in objects for _, keys in phrase.german)
        return Clause(key, subject, verb, tense, modal, negated, kein, objects, places)

    def clause(self, kind: str = "main") -> Clause:
        """A clause with its adverbials; `kind` is "main", "sub", "that" or "question"."""
        self.pronoun, key, question = None, self.next_key(), kind == "question"
        if kind == "that":
            clause = self.verbal(key, self.pick(THAT_VERBS), question)
        elif self.chance(0.13):
            clause = self.copula(key, question)
        else:
            rain = self.chance(0.12 if kind == "sub" else 0.02)
            clause = self.verbal(key, self.pick(WEATHER_VERBS if rain else VERBS), question)
        tense = "future" if clause.modal is lx.FUTURE else clause.tense
        share, times = TIMES.get(tense, (0.0, ()))
        time = middle = None
        state = clause.verb is not None and clause.verb.auxiliary is None
        if kind != "that" and self.chance(share):
            # "not ... every day" denies the adverbial, not the clause.
            options = [t for t in times if t.english[0] != "every" or not clause.negated]
            time = self.adverbial(options)
        elif tense in MIDDLES and not (clause.negated or question or state) and self.chance(0.35):
            middle = self.adverbial(MIDDLES[tense])
        fronted = time is not None and kind == "main" and self.chance(0.5)
        return clause._replace(time=time, middle=middle, fronted=fronted)

    # Sentences

    def statement(self) -> tuple[list[Word], list[Word]]:
        clause = self.clause()
        return english_clause(clause), german_clause(clause, "second")

    def reason(self) -> tuple[list[Word], list[Word]]:
        """Two clauses joined by because and weil, in either order."""
        self.brief = True
        reason_first = self.chance(0.4)
        main = self.clause("sub" if reason_first else "main")
        sub = self.clause("sub")
        key = (sub.key + CONJUNCTION,)
        because = [("because", key), *english_clause(sub)]
        weil = [("weil", key), *german_clause(sub, "final")]
        if reason_first:
            english = [*_comma(because), *english_clause(main)]
            return english, [*_comma(weil), *german_clause(main, "first")]
        german = _comma(german_clause(main, "second"))
        return [*english_clause(main), *because], [*german, *weil]

    def report(self) -> tuple[list[Word], list[Word]]:
        """Someone knows or says that something is so."""
        self.brief = True
        main, sub = self.clause("that"), self.clause("sub")
        key = (sub.key + CONJUNCTION,)
        german = _comma(german_clause(main, "second"))
        return (
            [*english_clause(main), ("that", key), *english_clause(sub)],
            [*german, ("dass", key), *german_clause(sub, "final")],
        )

    def question(self) -> tuple[list[Word], list[Word]]:
        clause = self.clause("question")
        draw, key = self.uniform(), (clause.key + CONJUNCTION,)
        english, german = [], []
        if draw < 0.25:
            english, german = [("why", key)], [("warum", key)]
        elif draw < 0.45 and clause.tense != "perfect":
            english, german = [("when", key)], [("wann", key)]
            clause = clause._replace(time=None)
        return english + english_clause(clause, True), german + german_clause(clause, "first")

    def sentence(self) -> tuple[list[Word], list[Word]]:
        """A sentence in both languages, capitalised and closed by its mark."""
        self.start()
        draw = self.uniform()
        if draw < 0.15:
            mark, (english, german) = "?", self.question()
        else:
            compose = self.reason if draw < 0.37 else self.report if draw < 0.5 else self.statement
            mark, (english, german) = ".", compose()
        return _finish(english, mark), _finish(german, mark)


def _comma(words: list[Word]) -> list[Word]:
    *rest, (text, keys) = words
    return [*rest, (text + ",", keys)]


def _finish(words: list[Word], mark: str) -> list[Word]:
    (first, first_keys), *rest = words
    *rest, (last, last_keys) = [(first[0].upper() + first[1:], first_keys), *rest]
    return [*rest, (last + mark, last_keys)]


# --- Corpora -----------------------------------------------------------------------------------


def _align(source: list[Word], target: list[Word]) -> Pair:
    """The texts, and links between the words that share a key."""
    places: dict[int, list[int]] = {}
    for i, (_, keys) in enumerate(source):
        for key in keys:
            places.setdefault(key, []).append(i)
    links = {(i, j) for j, (_, keys) in enumerate(target) for k in keys for i in places.get(k, ())}
    english, german = (" ".join([text for text, _ in words]) for words in (source, target))
    return Pair(english, german, tuple(sorted(links)))


def _fill(draw: Callable[[], Pair], sizes: Mapping[str, int]) -> dict[str, list[Pair]]:
    """The first pairs of each split in the stream that `draw` yields."""
    for split, size in sizes.items():
        if split not in SPLIT_OF_HASH:
            raise ValueError(f"unknown split {split!r}: choose from train, validation, test")
        if not 0 <= size <= LARGEST:
            raise ValueError(f"{split} size {size}: choose a size between 0 and {LARGEST}")
    splits: dict[str, dict[str, Pair]] = {split: {} for split in sizes}
    missing = sum(sizes.values())
    tries = 1000 + 100 * missing
    while missing:
        tries -= 1
        if tries < 0:
            raise ValueError(f"sizes {dict(sizes)}: {missing} pairs too many; ask for fewer")
        pair = draw()
        split = SPLIT_OF_HASH[zlib.crc32(pair.target.encode()) % len(SPLIT_OF_HASH)]
        pairs = splits.get(split)
        if pairs is None or len(pairs) == sizes[split] or pair.target in pairs:
            continue
        pairs[pair.target] = pair
        missing -= 1
    return {split: list(pairs.values()) for split, pairs in splits.items()}


def generate(seed: int, sizes: Mapping[str, int]) -> dict[str, list[Pair]]:
    """English-German sentence pairs with gold alignments.

    Args:
        seed: Any integer; equal seeds give equal corpora on every platform.
        sizes: Pairs for each of the splits "train", "validation" and "test" that is wanted.

    Returns:
        The pairs of each split. No source and no target occurs twice, within or across splits.

    Raises:
        ValueError: If a split is unknown or more pairs are asked for than the grammar makes.
    """
    composer = _Composer(seed)

    def draw() -> Pair:
        while True:
            source, target = composer.sentence()
            lengths = len(source), len(target)
            if min(lengths) >= SHORTEST and max(lengths) <= LONGEST:
                return _align(source, target)

    return _fill(draw, sizes)


def _sequences(seed: int, sizes: Mapping[str, int], step: int) -> dict[str, list[Pair]]:
    uniform = random.Random(seed).random

    def draw() -> Pair:
        length = 4 + int(uniform() * 9)
        words = [(LETTERS[int(uniform() * len(LETTERS))], (i,)) for i in range(length)]
        return _align(words, words[::step])

    return _fill(draw, sizes)


def copy_sequences(seed: int, sizes: Mapping[str, int]) -> dict[str, list[Pair]]:
    """Sequences of 4 to 12 letters whose target is the same; see `generate` for the rest."""
    return _sequences(seed, sizes, 1)


def reverse_sequences(seed: int, sizes: Mapping[str, int]) -> dict[str, list[Pair]]:
    """Sequences of 4 to 12 letters whose target is reversed; see `generate` for the rest."""
    return _sequences(seed, sizes, -1)
