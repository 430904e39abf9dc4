"""The words of the embedded English-German corpus, one row per lemma.

Only what cannot be derived stands in a row: irregular English forms, the gender, plural and
genitive ending of German nouns, the third person and participle of German verbs. The rest follows
by rule when this module is imported. In the tables `_` stands for a space, `-` for nothing, `;`
for a new row, `|` follows a separable prefix and `+` an English particle that splits off.

Kinds ("person", "food", ...) say what fits where: a verb names the kinds of its subject and object,
an adjective the kinds it describes. That keeps sentences sensible, not only grammatical.

Source: M. Durrell, "Hammer's German Grammar and Usage", the chapters on nouns, articles,
adjectives, verbs (conjugation) and prepositions.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

CASES = ("nominative", "accusative", "dative", "genitive")
GENDERS = "mfnp"  # masculine, feminine, neuter; the plural has one declension for all three
PERSONS = ("1s", "2s", "3s", "p")  # the plural is one form in both languages (we, they)


def _rows(table: str) -> list[list[str]]:
    """Cells of a table written as text."""
    rows = [row.split() for row in table.replace(";", "\n").splitlines()]
    return [[cell.strip("-").replace("_", " ") for cell in row] for row in rows if row]


def inflect(word: str, suffix: str) -> str:
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


_GROUPS = {
    "being": ("person", "animal"),
    "goods": ("thing", "clothing", "vehicle", "device", "surface"),
}


def _kinds(cell: str) -> tuple[str, ...]:
    kinds = [_GROUPS.get(kind, (kind,)) for kind in cell.split(",") if kind]
    return tuple(kind for group in kinds for kind in group)


def _noun(kinds: str, english: str, german: str, gender: str, plural: str, suffix: str) -> Noun:
    # A weak noun is known by a genitive in -n, which is then every case but the nominative.
    genitive = german + suffix
    oblique = genitive if suffix.endswith("n") else german
    dative_plural = plural if plural.endswith(("n", "s")) else plural + "n"
    singular = zip(CASES, (german, oblique, oblique, genitive), strict=True)
    forms = {(case, gender): form for case, form in singular}
    for case in CASES:
        forms[case, "p"] = dative_plural if case == "dative" else plural
    one, _, many = english.partition("/")
    return Noun(one, (many or inflect(one, "s")) if plural else "", gender, _kinds(kinds), forms)


NOUNS = [
    _noun(kinds, *row)
    for kinds, table in {
        "person": """
            child/children Kind n Kinder es ; teacher Lehrer m Lehrer s ; doctor Arzt m Ärzte es
            neighbor Nachbar m Nachbarn n ; student Student m Studenten en ; uncle Onkel m Onkel s
            mother Mutter f Mütter - ; father Vater m Väter s ; brother Bruder m Brüder s
            sister Schwester f Schwestern - ; daughter Tochter f Töchter - ; son Sohn m Söhne es
            aunt Tante f Tanten - ; friend Freund m Freunde es ; colleague Kollege m Kollegen n
            guest Gast m Gäste es
        """,
        "person,unowned": """
            man/men Mann m Männer es ; woman/women Frau f Frauen - ; boy Junge m Jungen n
            girl Mädchen n Mädchen s ; police_officer Polizist m Polizisten en
        """,
        "animal": """
            dog Hund m Hunde es ; cat Katze f Katzen - ; bird Vogel m Vögel s
            horse Pferd n Pferde es ; bear Bär m Bären en
        """,
        "food": """
            apple Apfel m Äpfel s ; egg Ei n Eier es ; potato/potatoes Kartoffel f Kartoffeln -
            cake Kuchen m Kuchen s ; bread Brot n - es ; cheese Käse m - s ; meat Fleisch n - es
        """,
        "drink": "coffee Kaffee m - s ; tea Tee m - s ; water Wasser n - s ; milk Milch f - -",
        "text": """
            book Buch n Bücher es ; letter Brief m Briefe es ; story Geschichte f Geschichten -
            newspaper Zeitung f Zeitungen -
        """,
        "thing": """
            bag Tasche f Taschen - ; key Schlüssel m Schlüssel s ; picture Bild n Bilder es
            flower Blume f Blumen - ; knife/knives Messer n Messer s ; bottle Flasche f Flaschen -
            gift Geschenk n Geschenke s ; umbrella Regenschirm m Regenschirme s
        """,
        "clothing": """
            coat Mantel m Mäntel s ; shirt Hemd n Hemden es ; hat Hut m Hüte es
            jacket Jacke f Jacken - ; dress Kleid n Kleider es
        """,
        "vehicle": """
            car Auto n Autos s ; bicycle Fahrrad n Fahrräder s ; bus Bus m Busse ses
            ship Schiff n Schiffe es
        """,
        "device": """
            lamp Lampe f Lampen - ; computer Computer m Computer s ; radio Radio n Radios s
            washing_machine Waschmaschine f Waschmaschinen -
        """,
        "part": "roof Dach n Dächer es ; wall Wand f Wände -",
        "part,opening": "door Tür f Türen - ; window Fenster n Fenster s",
        "quality": "color Farbe f Farben - ; price Preis m Preise es",
        "place": """
            garden Garten m Gärten s ; park Park m Parks s ; school Schule f Schulen -
            museum Museum n Museen s ; restaurant Restaurant n Restaurants s
            hotel Hotel n Hotels s ; church Kirche f Kirchen -
            train_station Bahnhof m Bahnhöfe s ; swimming_pool Schwimmbad n Schwimmbäder s
            supermarket Supermarkt m Supermärkte s
        """,
        "place,room": """
            kitchen Küche f Küchen - ; room Zimmer n Zimmer s ; office Büro n Büros s
            house Haus n Häuser es
        """,
        "surface": """
            table Tisch m Tische es ; chair Stuhl m Stühle s ; bed Bett n Betten es
            sofa Sofa n Sofas s
        """,
    }.items()
    for row in _rows(table)
]
NAMES = ["Anna", "Peter", "Maria", "Paul", "Laura", "Martin", "Julia", "David", "Sarah", "Daniel"]
CITIES = [("Berlin", "Berlin"), ("Munich", "München"), ("Vienna", "Wien"), ("Cologne", "Köln")]

# --- Adjectives and degree adverbs -------------------------------------------------------------


class Adjective(NamedTuple):
    """An adjective: `german` alone after a verb, `stem` before an ending."""

    english: str
    german: str
    stem: str
    kinds: tuple[str, ...]
    color: bool


ADJECTIVES = [
    Adjective(english, german, stem or german, _kinds(kinds), english in ("red", "green", "black"))
    for english, german, stem, kinds in _rows("""
    old alt - being,goods,text,part,place
    new neu - goods,text,part,place,quality
    small klein - person,animal,thing,vehicle,part,place,surface,food
    big groß - animal,thing,vehicle,device,part,place,surface,food
    beautiful schön - animal,thing,clothing,vehicle,place
    good gut - person,food,drink,text,quality ; young jung - person,animal
    friendly freundlich - person ; tired müde müd person,animal ; happy glücklich - person
    clever klug - person,animal ; rich reich - person ; famous berühmt - person
    sick krank - person,animal ; hungry hungrig - person,animal ; dangerous gefährlich - animal
    expensive teuer teur clothing,vehicle,device,surface,food,drink
    cheap billig - thing,clothing,device,food ; red rot - thing,clothing,vehicle,part,surface
    green grün - clothing,vehicle,part ; black schwarz - animal,thing,clothing,surface
    heavy schwer - thing,device,surface ; fresh frisch - food,drink
    cold kalt - food,drink,weather ; warm warm - clothing,drink,weather
    dark dunkel dunkl part,place,weather ; late spät - weather ; long lang - text
    boring langweilig - text,place ; interesting interessant - text,place ; fast schnell - vehicle
    modern modern - device,vehicle,place
    """)
]
DEGREES = [("very", "sehr"), ("too", "zu"), ("really", "wirklich")]

# --- Determiners and pronouns ------------------------------------------------------------------

# Endings of der-words, and of adjectives that no article ending precedes; columns are GENDERS.
STRONG = {
    "nominative": ("er", "e", "es", "e"),
    "accusative": ("en", "e", "es", "e"),
    "dative": ("em", "er", "em", "en"),
    "genitive": ("es", "er", "es", "er"),
}
_CELLS = [(case, gender) for case in CASES for gender in GENDERS]
# ein-words lack the ending in exactly these three places.
_BARE_EIN = {("nominative", "m"), ("nominative", "n"), ("accusative", "n")}
_Forms = dict[tuple[str, str], tuple[str, str]]


@dataclass(frozen=True, eq=False)
class Determiner:
    """An article or a word in its place; `forms[case, gender]` is (German form, its ending)."""

    singular: str
    plural: str
    definite: bool
    forms: _Forms


def _declined(stem: str, bare: Collection[tuple[str, str]] = ()) -> _Forms:
    endings = {(case, g): STRONG[case][GENDERS.index(g)] for case, g in _CELLS}
    return {
        cell: (stem, "") if cell in bare else (stem + ending, ending)
        for cell, ending in endings.items()
    }


def _fixed(word: str) -> _Forms:
    return dict.fromkeys(_CELLS, (word, ""))


_ARTICLES = [
    cell
    for row in _rows("der die das die; den die das die; dem der dem den; des der des der")
    for cell in row
]
_ENDINGS = [ending for _, ending in _declined("").values()]
THE = Determiner(
    "the", "the", True, dict(zip(_CELLS, zip(_ARTICLES, _ENDINGS, strict=True), strict=True))
)
BARE = Determiner("", "", False, _fixed(""))
_PLURAL_BARE = {cell: form for cell, form in BARE.forms.items() if cell[1] == "p"}
INDEFINITE = Determiner("a", "", False, _declined("ein", _BARE_EIN) | _PLURAL_BARE)
# What "a", and nothing before a mass noun or plural, become under "not": not ... a, not ... any.
NO = Determiner("a", "any", False, _declined("kein", _BARE_EIN))
NO_MASS = Determiner("any", "", False, NO.forms)
THIS = Determiner("this", "these", True, _declined("dies"))
EVERY = Determiner("every", "", True, _declined("jed"))
NUMERALS = [Determiner("", en, False, _fixed(de)) for en, de in _rows("two zwei; three drei")]
POSSESSIVES = [
    Determiner(english, english, True, _declined(german, _BARE_EIN))
    for english, german in _rows("my mein; your dein; his sein; her ihr; our unser; their ihr")
]


class Pronoun(NamedTuple):
    """A personal pronoun in both languages; "you" is one familiar person, German du."""

    subject: str
    object: str
    person: str
    nominative: str
    accusative: str
    dative: str


PRONOUNS = [
    Pronoun(*row)
    for row in _rows("""
    I me 1s ich mich mir ; you you 2s du dich dir ; he him 3s er ihn ihm
    she her 3s sie sie ihr ; we us p wir uns uns ; they them p sie sie ihnen
    """)
]

# --- Verbs -------------------------------------------------------------------------------------


class Preposition(NamedTuple):
    """A preposition and the German case it governs in the sense meant."""

    english: str
    german: str
    case: str


_ANOMALOUS = {
    row[2]: tuple(row)
    for row in _rows("habe hast hat haben; mag magst mag mögen; weiß weißt weiß wissen")
}
HABEN = dict(zip(PERSONS, ("habe", "hast", "hat", "haben"), strict=True))
SEIN = dict(zip(PERSONS, ("bin", "bist", "ist", "sind"), strict=True))
WAR = dict(zip(PERSONS, ("war", "warst", "war", "waren"), strict=True))
BE = dict(zip(PERSONS, ("am", "are", "is", "are"), strict=True))
WAS = dict(zip(PERSONS, ("was", "were", "was", "were"), strict=True))


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb and the frame it heads.

    `present[person]` is its finite form without `prefix`, the separable prefix if any. `particle`
    follows the English verb; where `splits`, a pronoun object comes between. `frame` says which
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


def _verb(
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
    head, *particle = english.replace("+", " ").split(" ")
    base, *irregular = head.split("/")
    past, past_participle = irregular or [inflect(base, "ed")] * 2
    prefix, _, stem = german.rpartition("|")
    # The second person has the vowel of the third; after a sibilant the two are the same.
    second = third if third[:-1].endswith(("s", "ß", "z")) else third[:-1] + "st"
    present = _ANOMALOUS.get(third, (stem[:-2] + "e", second, third, stem))
    third_english = "has" if base == "have" else inflect(base, "s")
    return Verb(
        *(base, third_english, past, past_participle, " ".join(particle), "+" in english),
        *(prefix, prefix + stem, participle, dict(zip(PERSONS, present, strict=True))),
        *({"h": HABEN, "s": SEIN}.get(aux), frame, _kinds(subjects), _kinds(objects)),
        preposition=Preposition(*preposition) if preposition else None,
    )


VERBS = [
    _verb(frame, *row)
    for frame, table in {
        "intransitive": """
            sleep/slept/slept schlafen schläft geschlafen h being
            work arbeiten arbeitet gearbeitet h person ; dance tanzen tanzt getanzt h person
            sing/sang/sung singen singt gesungen h person
            arrive an|kommen kommt angekommen s person,vehicle
            watch_TV fern|sehen sieht ferngesehen h person
            fall/fell/fallen_asleep ein|schlafen schläft eingeschlafen s being
        """,
        "bare": """
            get/got/gotten_up auf|stehen steht aufgestanden s person
            come/came/come_back zurück|kommen kommt zurückgekommen s being
        """,
        "weather": "rain regnen regnet geregnet h - ; snow schneien schneit geschneit h -",
        "stay": "live wohnen wohnt gewohnt h person ; stay bleiben bleibt geblieben s being",
        "motion": """
            go/went/gone gehen geht gegangen s person
            come/came/come kommen kommt gekommen s person
            run/ran/run laufen läuft gelaufen s being
        """,
        "journey": """
            drive/drove/driven fahren fährt gefahren s person
            fly/flew/flown fliegen fliegt geflogen s person
        """,
        "on": """
            sit/sat/sat sitzen sitzt gesessen h being surface
            lie/lay/lain liegen liegt gelegen h text,clothing surface
        """,
        "put": "put/put/put legen legt gelegt h person text,clothing",
        "accusative": """
            buy/bought/bought kaufen kauft gekauft h person goods,food,text
            sell/sold/sold verkaufen verkauft verkauft h person goods,text
            eat/ate/eaten essen isst gegessen h person food
            drink/drank/drunk trinken trinkt getrunken h person drink
            read/read/read lesen liest gelesen h person text
            write/wrote/written schreiben schreibt geschrieben h person text
            see/saw/seen sehen sieht gesehen h being being,vehicle,part,place
            hear/heard/heard hören hört gehört h being being,vehicle
            find/found/found finden findet gefunden h being person,thing,text,food
            look_for suchen sucht gesucht h person being,thing,clothing
            lose/lost/lost verlieren verliert verloren h person thing,clothing
            forget/forgot/forgotten vergessen vergisst vergessen h person thing,text,quality
            have/had/had haben hat gehabt - person animal,thing,vehicle,device
            need brauchen braucht gebraucht - person thing,clothing,vehicle,device
            like mögen mag gemocht - person being,food,drink,quality
            know/knew/known kennen kennt gekannt - person person,place,text,quality
            visit besuchen besucht besucht h person person,place
            understand/understood/understood verstehen versteht verstanden h person person,text
            repair reparieren repariert repariert h person vehicle,device,part
            wash waschen wäscht gewaschen h person vehicle,clothing,animal
            wear/wore/worn tragen trägt getragen h person clothing
            call an|rufen ruft angerufen h person person
            invite ein|laden lädt eingeladen h person person
            pick+up ab|holen holt abgeholt h person person
            look_at an|sehen sieht angesehen h person being,vehicle,place
            open auf|machen macht aufgemacht h person opening
            close zu|machen macht zugemacht h person opening
            turn+on ein|schalten schaltet eingeschaltet h person device
            turn+off aus|schalten schaltet ausgeschaltet h person device
            bring/brought/brought+along mit|bringen bringt mitgebracht h person person,food,thing
            throw/threw/thrown+away weg|werfen wirft weggeworfen h person thing,clothing,food
            clean+up auf|räumen räumt aufgeräumt h person room
        """,
        "dative": """
            help helfen hilft geholfen h person person ; thank danken dankt gedankt h person person
            follow folgen folgt gefolgt s being being,vehicle
            answer antworten antwortet geantwortet h person person
            listen_to zu|hören hört zugehört h person person
            belong_to gehören gehört gehört - thing,vehicle,animal person
        """,
        "ditransitive": """
            give/gave/given geben gibt gegeben h person food,thing,text
            show/showed/shown zeigen zeigt gezeigt h person thing,text,animal,vehicle
            send/sent/sent schicken schickt geschickt h person text,thing
            lend/lent/lent leihen leiht geliehen h person vehicle,text,clothing
        """,
        "prepositional": """
            wait warten wartet gewartet h being person,vehicle for auf accusative
            think/thought/thought denken denkt gedacht h person being,place of an accusative
            talk sprechen spricht gesprochen h person being,text,quality about über accusative
            dream träumen träumt geträumt h being person,vehicle,place of von dative
            play spielen spielt gespielt h being being with mit dative
        """,
        "that": """
            know/knew/known wissen weiß gewusst - person ; say/said/said sagen sagt gesagt h person
            think/thought/thought denken denkt gedacht h person
            believe glauben glaubt geglaubt h person ; hear/heard/heard hören hört gehört h person
        """,
    }.items()
    for row in _rows(table)
]


class Modal(NamedTuple):
    """A modal or the future auxiliary; `to` marks the one that is an ordinary verb in English."""

    english: str
    to: bool
    negatable: bool  # "must not" is not "muss nicht", so must stays affirmative
    present: dict[str, str]


MODALS = [
    Modal(english, to == "to", negatable == "not", dict(zip(PERSONS, present, strict=True)))
    for english, to, negatable, *present in _rows("""
    can     -   not  kann   kannst   kann  können
    must    -   -    muss   musst    muss  müssen
    want    to  not  will   willst   will  wollen
    should  -   not  sollte solltest sollte sollten
    may     -   not  darf   darfst   darf  dürfen
    """)
]
FUTURE = Modal(
    "will", False, True, dict(zip(PERSONS, ("werde", "wirst", "wird", "werden"), strict=True))
)

# --- Prepositions and adverbials ---------------------------------------------------------------


def _prepositions(table: str) -> list[Preposition]:
    return [Preposition(*row) for row in _rows(table)]


LOCATIVE = _prepositions("in in dative; behind hinter dative; next_to neben dative")
ON, UNDER = _prepositions("on auf dative; under unter dative")
ONTO = Preposition("on", "auf", "accusative")
DIRECTIONAL = _prepositions("to zu dative; into in accusative; through durch accusative")
ACCOMPANYING = _prepositions("with mit dative; for für accusative; without ohne accusative")
CONTRACTIONS = {
    (preposition, article): contraction
    for preposition, article, contraction in _rows(
        "in dem im; in das ins; an dem am; an das ans; von dem vom; zu dem zum; zu der zur"
    )
}


class Adverbial(NamedTuple):
    """A fixed phrase; `links` aligns its English to its German words."""

    english: tuple[str, ...]
    german: tuple[str, ...]
    links: tuple[tuple[int, int], ...]


def _adverbials(table: str) -> list[Adverbial]:
    return [
        Adverbial(
            tuple(english.split()),
            tuple(german.split()),
            tuple((int(link[0]), int(link[2])) for link in links.split(",")),
        )
        for english, german, links in _rows(table)
    ]


PRESENT_TIMES = _adverbials("""
    today heute 0-0 ; now jetzt 0-0 ; every_day jeden_Tag 0-0,1-1
    in_the_morning am_Morgen 0-0,1-0,2-1 ; in_the_evening am_Abend 0-0,1-0,2-1
    on_Monday am_Montag 0-0,1-1 ; on_Sunday am_Sonntag 0-0,1-1 ; in_summer im_Sommer 0-0,1-1
    in_winter im_Winter 0-0,1-1 ; at_night nachts 0-0,1-0
""")
PAST_TIMES = _adverbials("""
    yesterday gestern 0-0 ; yesterday_evening gestern_Abend 0-0,1-1
    last_week letzte_Woche 0-0,1-1 ; last_year letztes_Jahr 0-0,1-1
    last_Friday letzten_Freitag 0-0,1-1 ; two_days_ago vor_zwei_Tagen 2-0,0-1,1-2
    a_year_ago vor_einem_Jahr 2-0,0-1,1-2
""")
FUTURE_TIMES = _adverbials("""
    tomorrow morgen 0-0 ; soon bald 0-0 ; next_week nächste_Woche 0-0,1-1
    next_year nächstes_Jahr 0-0,1-1 ; next_Friday nächsten_Freitag 0-0,1-1
""")
FREQUENCIES = _adverbials(
    "often oft 0-0; always immer 0-0; sometimes manchmal 0-0; never nie 0-0; rarely selten 0-0"
)
ASPECTS = _adverbials("already schon 0-0; just gerade 0-0; finally endlich 0-0")
HOMEWARD = Adverbial(("home",), ("nach", "Hause"), ((0, 0), (0, 1)))
