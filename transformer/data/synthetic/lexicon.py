"""The words of the embedded English-German corpus, one row per lemma.

Only what cannot be derived stands in a row: irregular English forms, the gender, plural and
genitive ending of German nouns, the third person and participle of German verbs. The rest follows
by the rules of `inflection` when this module is imported. In the tables `_` stands for a space, `-`
for nothing, `;` for a new row, `|` follows a separable prefix and `+` an English particle that
splits off.

Kinds ("person", "food", ...) say what fits where: a verb names the kinds of its subject and object,
an adjective the kinds it describes; "weather" is said of "it". That keeps sentences sensible, not
only grammatical.

Source: M. Durrell, "Hammer's German Grammar and Usage", the chapters on nouns, articles,
adjectives, verbs (conjugation) and prepositions.
"""

from transformer.data.synthetic.inflection import (
    BARE_EIN,
    CELLS,
    WERDEN,
    Adjective,
    Adverbial,
    Determiner,
    Modal,
    Preposition,
    Pronoun,
    by_person,
    declined,
    expand_kinds,
    make_adverbial,
    make_noun,
    make_verb,
    undeclined,
)


def _rows(table: str) -> list[list[str]]:
    """Cells of a table written as text."""
    rows = [row.split() for row in table.replace(";", "\n").splitlines()]
    return [[cell.strip("-").replace("_", " ") for cell in row] for row in rows if row]


# --- Nouns -------------------------------------------------------------------------------------

NOUNS = [
    make_noun(kinds, *row)
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
            lamp Lampe f Lampen - ; computer Computer m Computer s ; radio/radios Radio n Radios s
            washing_machine Waschmaschine f Waschmaschinen -
        """,
        "part": "roof Dach n Dächer es ; wall Wand f Wände -",
        "part,opening": "door Tür f Türen - ; window Fenster n Fenster s",
        "quality": "color Farbe f Farben - ; price Preis m Preise es",
        "place": "garden Garten m Gärten s ; park Park m Parks s",
        "place,building": """
            school Schule f Schulen -
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

COLORS = ("red", "green", "black")
ADJECTIVES = [
    Adjective(english, german, stem or german, expand_kinds(kinds), english in COLORS)
    for english, german, stem, kinds in _rows("""
    old alt - being,goods,text,part,place
    new neu - goods,text,part,place,quality
    small klein - person,animal,thing,vehicle,part,place,surface
    big groß - animal,thing,vehicle,device,part,place,surface
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

[_ARTICLES] = _rows("der die das die den die das die dem der dem den des der des der")
_ENDINGS = [ending for _, ending in declined("").values()]
THE = Determiner(
    "the", "the", True, dict(zip(CELLS, zip(_ARTICLES, _ENDINGS, strict=True), strict=True))
)
BARE = Determiner("", "", False, undeclined(""))
_PLURAL_BARE = {cell: form for cell, form in BARE.forms.items() if cell[1] == "p"}
INDEFINITE = Determiner("a", "", False, declined("ein", BARE_EIN) | _PLURAL_BARE)
# What "a", and nothing before a mass noun or plural, become under "not": not ... a, not ... any.
NO = Determiner("a", "any", False, declined("kein", BARE_EIN))
NO_MASS = Determiner("any", "", False, NO.forms)
THIS = Determiner("this", "these", True, declined("dies"))
EVERY = Determiner("every", "", True, declined("jed"))
NUMERALS = [Determiner("", en, False, undeclined(de)) for en, de in _rows("two zwei; three drei")]
POSSESSIVES = [
    Determiner(english, english, True, declined(german, BARE_EIN))
    for english, german in _rows("my mein; your dein; his sein; her ihr; our unser; their ihr")
]

PRONOUNS = [
    Pronoun(*row)
    for row in _rows("""
    I me 1s ich mich mir ; you you 2s du dich dir ; he him 3s er ihn ihm
    she her 3s sie sie ihr ; we us p wir uns uns ; they them p sie sie ihnen
    """)
]
EXPLETIVE = Pronoun("it", "it", "3s", "es", "es", "es")  # that rains, and is cold

# --- Verbs -------------------------------------------------------------------------------------

VERBS = [
    make_verb(frame, *row)
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
        "weather": """
            rain regnen regnet geregnet h weather ; snow schneien schneit geschneit h weather
        """,
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

MODALS = [
    Modal(english, to == "to", negatable == "not", by_person(*present))
    for english, to, negatable, *present in _rows("""
    can     -   not  kann   kannst   kann  können
    must    -   -    muss   musst    muss  müssen
    want    to  not  will   willst   will  wollen
    should  -   not  sollte solltest sollte sollten
    may     -   not  darf   darfst   darf  dürfen
    """)
]
FUTURE = Modal("will", False, True, WERDEN)

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
        "in dem im; in das ins; von dem vom; zu dem zum; zu der zur"
    )
}


def _adverbials(table: str) -> list[Adverbial]:
    return [make_adverbial(*row) for row in _rows(table)]


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

# --- What fits where ---------------------------------------------------------------------------

ADJECTIVES_OF = {
    kind: [adjective for adjective in ADJECTIVES if kind in adjective.kinds]
    for kind in {kind for adjective in ADJECTIVES for kind in adjective.kinds}
}
# What has a roof, and what has a price.
WHOLES = {"part": ("room", "building"), "quality": ("clothing", "vehicle")}
NOUNS_OF = {
    kinds: [noun for noun in NOUNS if not set(kinds).isdisjoint(noun.kinds)]
    for kinds in {verb.objects for verb in VERBS}
    | {verb.subjects for verb in VERBS}
    | {(kind,) for noun in NOUNS for kind in noun.kinds}
    | set(WHOLES.values())
}
THAT_VERBS = [verb for verb in VERBS if verb.frame == "that"]
WEATHER_VERBS = [verb for verb in VERBS if verb.frame == "weather"]
OTHER_VERBS = [verb for verb in VERBS if verb.frame not in ("that", "weather")]
# By tense: how often a clause has an adverbial of time, and which; and what adverb it may have.
TIMES = {
    "present": (0.3, PRESENT_TIMES),
    "past": (1.0, PAST_TIMES),
    "modal": (0.2, PRESENT_TIMES),
    "future": (0.6, FUTURE_TIMES),
}
MIDDLES = {"present": FREQUENCIES, "perfect": ASPECTS}
# What may be in a state or place, as often as it stands here.
COPULA_KINDS = ("person", "person", "person", "animal", "food", "drink", "text", "thing")
COPULA_KINDS += ("clothing", "vehicle", "device", "part", "place", "surface")
