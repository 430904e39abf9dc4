"""Cleaning keeps good pairs of every script, with names, numbers, times and dates."""

import dataclasses

import pytest

from configs import own_text
from transformer.data.cleaning import FAULTS, folded, rules_of
from transformer.data.pairs import Pair
from transformer.data.parallel.training_pairs import survey

pytestmark = pytest.mark.full

CHINESE = """
I use Microsoft Internet Explorer.|我用Microsoft Internet Explorer。
It costs 10,000 yen.|要1万日元。
Today everything has a 25% discount.|今天全部商品打75折。
It is 5:30 pm.|现在是17:30。
The train leaves at 10:15 pm.|火车22:15出发。
It's a quarter to 12.|现在是11点45分。
The Republic was founded in 1912.|共和国成立于民国1年。
Don&#39;t go.|别去。
"""
JAPANESE = """
He is 1.8 m tall.|彼の身長は180センチです。
It was built in 1972.|昭和47年に建てられた。
She came on October 10, 2020.|彼女は2020年10月10日に来た。
"""
HINDI = """
He eats.|वह खाता है।
It costs 100,000 rupees.|इसकी कीमत 1 लाख रुपये है।
The year is 1972.|साल १९७२ है।
It is 5 pm.|शाम के 5 बजे हैं।
"""
ARABIC = """
He was born in 1972.|ولد عام ١٩٧٢.
The price is 1,000 dinars.|السعر ١٠٠٠ دينار.
He wrote.|كَتَبَ.
3 million people|٣٬٠٠٠٬٠٠٠ شخص
On 5/12/2020|في 2020/12/5
20 &amp; 30|٢٠ و ٣٠
"""
THAI = """
It was 1972.|ปี พ.ศ. 2515
It costs 50,000 baht.|ราคา 5 หมื่นบาท
It is 7 pm.|เวลา 19:00 น.
1,500,000 people|1.5 ล้านคน
On 14 April 2020|วันที่ 14 เมษายน 2563
"""
EUROPEAN = """
3,000,000 people|3 Millionen Menschen
It is 11:30.|Es ist halb 12.
It's 9:45.|Son las 10 menos cuarto.
in the 1990s|in den 90er Jahren
1,250 of twelve dogs|1 250 von zwölf Hunden
Angle α|Угол α
"""

RULES = rules_of(own_text.get_config().data)


@pytest.mark.parametrize("table", [CHINESE, JAPANESE, HINDI, ARABIC, THAI, EUROPEAN])
def test_no_good_pair_is_dropped_by_the_rules_of_own_text(table):
    good = [Pair(*line.split("|")) for line in table.strip().splitlines()]
    # Enough of them, in the script of the table, that another one is a fault.
    first = good[0].target + good[1].target
    letters = 3 * "".join(each for each in first if each.isalpha() and not each.isascii())
    more = [Pair("the same line", letters or "die Zeile")] * 400
    rules = dataclasses.replace(RULES, remove_duplicates=False)
    bad = [Pair("10 dogs", "12 Hunde"), Pair("the same line", "a sentence that is no name")]
    *faults, numbers, script = survey([*good, *more, *bad], rules).faults
    assert [pair for pair, fault in zip(good, faults, strict=False) if fault] == []
    # The control: this is not since the rules are off.
    assert FAULTS[numbers] == "numbers"
    assert FAULTS[script] == ("" if table == EUROPEAN else "script")


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("वह खाता है", "वह खाती है"),
        ("a\u0302n", "a\u0309n"),
        ("か\u3099", "か"),
        ("I ♥ it", "I it"),
    ],
)
def test_what_differs_in_a_mark_or_a_symbol_is_no_near_duplicate(text, other):
    assert folded(text) != folded(other)
    assert folded(f"{text} 12!") == folded(text.upper()) == folded(f"«{text}»… 7")
    assert folded("Tiê\u0301ng Việt") == folded("tiếng Viê\u0323t!")  # composed or not
