"""Where sentences end, in many languages."""

from transformer.inference.segments import split_sentences

LINES = """
en Who are you?| What is this?| Wait!| I am a student.
en Dr. Smith paid $3.50, i.e. nothing.| He left.
en Mr. J. R. Jones met Mrs. Hall at 5 p.m. on Jan. 3.| They left.
en See Fig. 3 and No. 5, e.g. the table by Smith et al. in vol. 2.| It is old.
en "Is it late?" he asked.| "Yes."
en I live in the U.S. Army camp.| It is big...
en Wait... what?| Prof. Lee vs. Gen. Grant.
de Am 3. Mai kam er z. B. nach Berlin.| Dann ging er.
de Dr. Müller wohnt in der Goethestr. 5, d. h. nebenan.| Er ist ca. 50 Jahre alt.
de Er kam am 15. Januar an, u. a. mit Frau Prof. Dr. Weber.| Sie blieb.
fr M. Martin est arrivé.| Il est parti.
fr Il naquit en 52 av. J.-C. à Rome.| Il mourut jeune.
fr Mme. Dupont et MM. Durand habitent au no. 5, p. ex. ici.| C'est grand.
fr Voir p. 12, chap. 3, etc. pour la suite.| Qui est là ?| C'est moi !
fr « Où est-il ? » demanda-t-elle.| Personne ne répondit.
es El Sr. García y la Sra. López viven en la Av. Juárez 5.| ¿Quién es?| ¡Es él!
es La Dra. Ruiz llegó a las 5 p. m. a EE. UU. con D. Juan.| Se fue.
es Véase la pág. 3, p. ej. el cap. 2.| Es así.
it Il sig. Rossi e la dott.ssa Bianchi sono qui.| Bene!
it Il prof. Verdi nacque nel 100 a.C. a Roma, cfr. pag. 5.| Poi morì.
nl Dhr. Jansen en mevr. de Vries wonen o.a. in Utrecht.| Ze zijn oud.
nl Dit is bijv. de Dr. Kuyperstraat nr. 5, d.w.z. hier.| Ja?| Nee!
nl Mr. J. de Wit is ca. 50 jaar, m.a.w. oud.| Hij lacht.
sv Det finns t.ex. äpplen och bl.a. päron.| Jag gillar dem.
sv Han kom kl. 5 f.m. med dr. Berg, dvs. för tidigt.| Vad nu?
sv Det var ca. 50 st. på s. 12, m.m. och osv. i boken.| Bra!
ru Он жил в г. Москве.| А. С. Пушкин писал.
ru Это т. е. то же самое, и т. д. и т. п. в книге.| Он ушёл.
ru В 1995 г. на ул. Ленина, д. 5, им. Горького было 3 тыс. человек.| Кто там?
ru Он родился в I в. до н. э. в Риме.| Это, т. е. город, велико.| Да!
pt O Sr. Silva e a Sra. Costa moram na Av. Brasil, n. 5.| Quem é?| É ele!
pt O Dr. Souza chegou em 50 a.C. a Roma, p. ex. de barco.| Ele ficou.
pt V. Exa. pode ver a pág. 3 do vol. 2, etc. e tal.| Obrigado.
pl Urodził się w 1950 r. w Krakowie, tzn. tu.| Prof. dr hab. Nowak mieszka na ul. Długiej.
pl Były tam m.in. jabłka, np. czerwone, itd. itp. w koszu.| Ładne.
cs Pan Ing. Novák bydlí na nám. Míru č. 5, tj. tady.| Je např. doma.
uk Він жив у м. Києві на вул. Франка, 5, тобто тут.| Це т. зв. центр і т. д. навколо.| Так!
ja 彼は「はい。行きます。」と言った。|私は笑った。
ja 「本当？」と彼女は聞いた。|はい！|行こう。
ja 彼は学生です（東京大学。）。|元気？
zh 你好。|今天很好！|好的。
zh 他说:“你好。我走了。”|然后他走了。
ko 그는 갔다.| 어디로?| 모른다!
ar مرحبا.| كيف حالك؟| أنا بخير.
hi यह एक है।| यह दो है।| क्या?
el Ο κ. Παπαδόπουλος ήρθε.| Πού είναι;| Εδώ!
tr Dr. Yılmaz saat 5'te geldi, vb. şeyler oldu.| Kim o?
en No. I do not.| So do I.| He left.| See No. 5.
en i have a dog.| it barks.
de Er ist 20.| Sie ist 30.
"""


def test_abbreviations_and_quotations_end_no_sentence():
    for line in LINES.strip().splitlines():
        language, text = line.split(" ", 1)
        parts = split_sentences(text.replace("|", ""), language)
        assert [part.strip() for part in parts] == [part.strip() for part in text.split("|")]
