"""User report 4: keyword search works in every language."""

from __future__ import annotations

import unicodedata

import pytest

from fluxmem_local.index import LexicalIndex
from fluxmem_local.text import tokenize, tokenize_query

FACTS = {
    "zh/library": "图书馆每天早上九点开门，周末休息。",
    "zh/train": "从北京到上海的高铁大约需要五个小时。",
    "zh/tea": "绿茶不能用沸水冲泡，否则味道会变苦。",
    "ja/printer": "三階のプリンターは両面印刷ができます。",
    "ja/meeting": "次の会議は木曜日の午後に変更されました。",
    "ja/dog": "隣の家の犬は夜になると吠える。",
    "ko/server": "서버를 다시 시작하기 전에 백업을 확인하세요.",
    "ko/kimchi": "할머니가 담근 김치는 조금 맵습니다.",
    "ko/bus": "마지막 버스는 밤 열한 시에 출발합니다.",
    "ar/library": "تفتح المكتبة أبوابها في الصباح.",
    "ar/car": "السيارات القديمة تحتاج إلى صيانة أكثر.",
    "ar/rain": "توقفت الأمطار بعد منتصف الليل.",
    "he/cat": "החתול ישן על הספה בסלון.",
    "he/ticket": "הכרטיסים לרכבת נמכרים בתחנה.",
    "he/soup": "המרק צריך עוד קצת מלח.",
    "hi/book": "उसकी किताबें मेज़ पर रखी हैं।",
    "hi/train": "रेलगाड़ी आज दो घंटे देर से आएगी।",
    "hi/garden": "बगीचे में गुलाब खिल रहे हैं।",
    "ru/medal": "Медали спортсменов хранятся в музее.",
    "ru/password": "Пароль меняют каждые три месяца.",
    "ru/mushroom": "Осенью в лесу много грибов.",
    "th/battery": "แบตเตอรี่ของโทรศัพท์หมดเร็วมาก",
    "th/market": "ตลาดเปิดทุกวันเสาร์ตอนเช้า",
    "th/river": "แม่น้ำสายนี้ไหลลงสู่ทะเล",
    "fr/cafe": "Le café près de la gare ferme à midi.",
    "fr/cats": "Les chats dormaient toute la journée.",
    "de/houses": "Die Häuser in der Altstadt sind sehr alt.",
    "pt/heart": "O coração da máquina é uma bomba pequena.",
    "tr/istanbul": "İSTANBUL ofisi pazartesi günü kapalı.",
    "el/sea": "Η θάλασσα ήταν ήρεμη χθες.",
    "emoji/rocket": "Release day 🚀 went well",
    "emoji/pizza": "Team lunch 🍕 on Friday",
    "en/router": "The NXR24 router reboots when port eth0 is saturated.",
    "en/table": "Medal counts are stored in summer_games.csv by athlete.",
}
QUERIES = [
    ("图书馆", "zh/library"),
    ("高铁", "zh/train"),
    ("茶", "zh/tea"),
    ("プリンター", "ja/printer"),
    ("会議", "ja/meeting"),
    ("犬", "ja/dog"),
    ("서버", "ko/server"),
    ("김치", "ko/kimchi"),
    ("버스가", "ko/bus"),
    ("مكتبة", "ar/library"),
    ("سيارة", "ar/car"),
    ("أمطار", "ar/rain"),
    ("חתול", "he/cat"),
    ("כרטיסים", "he/ticket"),
    ("מרק", "he/soup"),
    ("किताब", "hi/book"),
    ("रेलगाड़ी", "hi/train"),
    ("गुलाब", "hi/garden"),
    ("медаль", "ru/medal"),
    ("медалью", "ru/medal"),
    ("ПАРОЛИ", "ru/password"),
    ("гриб", "ru/mushroom"),
    ("แบตเตอรี่", "th/battery"),
    ("ตลาด", "th/market"),
    ("แม่น้ำ", "th/river"),
    ("café", "fr/cafe"),
    ("cafe", "fr/cafe"),
    ("dormir", "fr/cats"),
    ("Haus", "de/houses"),
    ("bombas", "pt/heart"),
    ("istanbul", "tr/istanbul"),
    ("θαλασσα", "el/sea"),
    ("🚀", "emoji/rocket"),
    ("🍕", "emoji/pizza"),
    ("nxr24", "en/router"),
    ("rebooting", "en/router"),
    ("summer", "en/table"),
    ("summer_games.csv", "en/table"),
]


@pytest.fixture(scope="module", params=["NFC", "NFD"])
def index(request) -> LexicalIndex:
    index = LexicalIndex()
    for id, text in FACTS.items():
        index.add(id, tokenize(unicodedata.normalize(request.param, text)))
    return index


@pytest.mark.parametrize(("query", "right"), QUERIES)
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_report_4_a_word_of_any_language_finds_its_fact(index, query, right, form) -> None:
    hits = index.search(tokenize_query(unicodedata.normalize(form, query)), 3)
    assert hits[0][0] == right
    assert len(hits) == 1 or hits[0][1] > hits[1][1]
