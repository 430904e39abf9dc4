"""Phrases, clauses and sentences, spelled out in English and in German.

A meaning goes in, two lists of words come out: agreement inside the noun phrase, the forms and
places of verbs, the order of everything between them. Nothing here is random; `grammar` draws what
is said. Each word carries keys of the pieces of meaning it expresses, from which `align` makes the
links that `grammar` documents.

Source: M. Durrell, "Hammer's German Grammar and Usage", the chapters on adjectives (endings) and
word order (the verbal bracket, objects and adverbials in the central section, place of nicht).
"""

from collections.abc import Sequence
from typing import NamedTuple

from transformer.data.pairs import Pair
from transformer.data.synthetic import lexicon as lx
from transformer.data.synthetic.inflection import (
    BE,
    SEIN,
    WAR,
    WAS,
    Adjective,
    Adverbial,
    Determiner,
    Modal,
    Noun,
    Preposition,
    Pronoun,
    Verb,
    adjective_ending,
)

Word = tuple[str, tuple[int, ...]]  # text, and the keys of its meaning
Sentence = tuple[list[Word], list[Word]]  # in English and in German

# A piece of meaning is (constituent's key) + (role in it); constituents are numbered by STEP.
STEP = 8
DETERMINER, NOUN, OF, ADJECTIVES = 0, 1, 2, 3
AUXILIARY, VERB, PARTICLE, NEGATION, CONJUNCTION = 0, 1, 2, 3, 4


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

    `owner` is a genitive: a name ("Anna's"), or a noun phrase, with 's or, if `of`, with "of".
    """

    key: int
    noun: Noun
    gender: str
    determiner: Determiner
    adjectives: tuple[Adjective, ...] = ()
    owner: "NounPhrase | str | None" = None
    of: bool = False


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
    """The German words of `phrase`; `negation` is the key that kein also expresses."""
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


def prepositional_phrase(key: int, preposition: Preposition, phrase: Phrase) -> Phrase:
    """The preposition and `phrase`, which is in its case; an article may contract: im, zur."""
    (first, keys), *rest = phrase.german
    contraction = lx.CONTRACTIONS.get((preposition.german, first))
    if contraction:
        german: list[Word] = [(contraction, (key, *keys)), *rest]
    else:
        german = [(preposition.german, (key,)), *phrase.german]
    return Phrase([*_spread(preposition.english, key), *phrase.english], german)


def adverbial_phrase(key: int, adverbial: Adverbial) -> Phrase:
    """A fixed adverbial, linked as the lexicon says; link n expresses key + n."""
    links = list(enumerate(adverbial.links))
    english, german = (
        [(w, tuple(key + n for n, link in links if link[side] == i)) for i, w in enumerate(words)]
        for side, words in enumerate((adverbial.english, adverbial.german))
    )
    return Phrase(english, german)


def pronoun_phrase(key: int, pronoun: Pronoun, case: str) -> Phrase:
    """A pronoun; English has one form for all cases but the nominative."""
    english = pronoun.subject if case == "nominative" else pronoun.object
    german = getattr(pronoun, case)
    return Phrase([(english, (key,))], [(german, (key,))], pronoun.person, True, True)


def name_phrase(key: int, name: str) -> Phrase:
    """A person's name, which is the same in both languages."""
    word = [(name, (key,))]
    return Phrase(word, word, definite=True)


def names_joined(key: int, one: Phrase, other: Phrase) -> Phrase:
    """Two persons, joined by "and"."""
    english = [*one.english, ("and", (key,)), *other.english]
    german = [*one.german, ("und", (key,)), *other.german]
    return Phrase(english, german, "p", definite=True)


def word_for_word(key: int, *words: tuple[str, str]) -> Phrase:
    """A fixed phrase of (English, German) words."""
    english = [(word, (key + i,)) for i, (word, _) in enumerate(words)]
    german = [(word, (key + i,)) for i, (_, word) in enumerate(words)]
    return Phrase(english, german)


# --- Clauses -----------------------------------------------------------------------------------


class Clause(NamedTuple):
    """What a clause says; `english_clause` and `german_clause` put it into words.

    `tense` is "present", "perfect", "past" or "modal"; a `verb` of None is the copula. `middle` is
    a single adverb such as "often".
    """

    key: int
    subject: Phrase
    verb: Verb | None
    tense: str = "present"
    modal: Modal | None = None
    negated: bool = False
    objects: Sequence[Phrase] = ()
    places: Sequence[Phrase] = ()
    time: Phrase | None = None
    middle: Phrase | None = None
    fronted: bool = False

    @property
    def kein(self) -> bool:
        """Whether the negation is inside an object."""
        key = self.key + NEGATION
        return any(key in keys for phrase in self.objects for _, keys in phrase.german)


def _english_verb(clause: Clause, support: bool) -> tuple[list[Word], list[Word]]:
    """The auxiliary, if any, and the other verbs; `support` calls for do in its absence."""
    verb, tense, person = clause.verb, clause.tense, clause.subject.person
    auxiliary, lexical, particle = (clause.key + role for role in (AUXILIARY, VERB, PARTICLE))
    if verb is None:
        form = (WAS if tense == "past" else BE)[person]
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
        form = (WAR if clause.tense == "past" else SEIN)[person]
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
    if order == "final":
        return [*subject, *middle, *rest, finite]
    if order == "second" and not clause.fronted:
        return [*subject, finite, *middle, *rest]
    field = clause.time.german if clause.time and clause.fronted else []
    return [*field, finite, *subject, *middle, *rest]


# --- Sentences ---------------------------------------------------------------------------------


def statement(clause: Clause) -> Sentence:
    """A main clause that says that something is so."""
    return english_clause(clause), german_clause(clause, "second")


def question(clause: Clause, *question_word: tuple[str, str]) -> Sentence:
    """A clause that asks, after an (English, German) word such as "why" if one is given."""
    asked = word_for_word(clause.key + CONJUNCTION, *question_word)
    return (
        asked.english + english_clause(clause, question=True),
        asked.german + german_clause(clause, "first"),
    )


def reason(main: Clause, sub: Clause, reason_first: bool) -> Sentence:
    """Two clauses joined by because and weil, in either order."""
    key = (sub.key + CONJUNCTION,)
    because = [("because", key), *english_clause(sub)]
    weil = [("weil", key), *german_clause(sub, "final")]
    if reason_first:
        english = [*_marked(because, ","), *english_clause(main)]
        return english, [*_marked(weil, ","), *german_clause(main, "first")]
    german = _marked(german_clause(main, "second"), ",")
    return [*english_clause(main), *because], [*german, *weil]


def report(main: Clause, sub: Clause) -> Sentence:
    """Someone knows or says that something is so."""
    key = (sub.key + CONJUNCTION,)
    german = _marked(german_clause(main, "second"), ",")
    return (
        [*english_clause(main), ("that", key), *english_clause(sub)],
        [*german, ("dass", key), *german_clause(sub, "final")],
    )


def _marked(words: list[Word], mark: str) -> list[Word]:
    *rest, (text, keys) = words
    return [*rest, (text + mark, keys)]


def finish(sentence: Sentence, mark: str) -> Sentence:
    """The sentence capitalised and closed by its mark, in both languages."""
    english, german = (_marked(words, mark) for words in sentence)
    for words in (english, german):
        text, keys = words[0]
        words[0] = (text[0].upper() + text[1:], keys)
    return english, german


def align(source: list[Word], target: list[Word]) -> Pair:
    """The texts, and links between the words that share a key."""
    places: dict[int, list[int]] = {}
    for i, (_, keys) in enumerate(source):
        for key in keys:
            places.setdefault(key, []).append(i)
    links = {(i, j) for j, (_, keys) in enumerate(target) for k in keys for i in places.get(k, ())}
    english, german = (" ".join([text for text, _ in words]) for words in (source, target))
    return Pair(english, german, tuple(sorted(links)))
