"""A word of any language finds its fact by words alone, through the agent, among facts of the same language."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

import pytest

from fluxmem_local.agent.sync import FluxMem
from fluxmem_local.config import FluxMemConfig
from fluxmem_local.graph import SemanticNode

FACTS = {
    "zh1": "医院的急诊室在一楼，昼夜有人值班。",
    "zh2": "水管漏水时先关总阀门。",
    "zh3": "博物馆星期一闭馆，其他日子照常开放。",
    "ja1": "停電のときは非常灯が自動で点きます。",
    "ja2": "鍵は受付のカウンターで預かっています。",
    "ja3": "プリンターの紙が切れたら総務に連絡してください。",
    "ko1": "엘리베이터가 고장 나면 관리실에 전화하세요.",
    "ko2": "주차장은 지하 이층에 있습니다.",
    "ko3": "회의실 예약은 하루 전까지 해야 합니다.",
    "ar1": "يحفظ المفتاح في درج المكتب.",
    "ar2": "تصل الشاحنات إلى المستودع عند الفجر.",
    "ar3": "اكتملت صيانة المصعد أمس.",
    "he1": "המפתחות של המחסן נמצאים אצל השומר.",
    "he2": "הרכבת האחרונה יוצאת בחצות.",
    "he3": "הגינה מאחורי הבית מושקית פעמיים ביום.",
    "hi1": "दरवाज़े की चाबियाँ चौकीदार के पास हैं।",
    "hi2": "अस्पताल नदी के उस पार है।",
    "hi3": "बिजली का बिल हर महीने आता है।",
    "th1": "กุญแจสำรองอยู่ในลิ้นชักโต๊ะทำงาน",
    "th2": "ลิฟต์ปิดซ่อมทุกวันอาทิตย์",
    "th3": "โรงพยาบาลอยู่ตรงข้ามสถานีรถไฟ",
    "ru1": "Запасные ключи лежат в сейфе.",
    "ru2": "Лифты проверяют раз в полгода.",
    "ru3": "Больница находится за рекой.",
    "uk1": "Лікарня стоїть за рікою.",
    "uk2": "Ґанок пофарбували у зелений колір.",
    "el1": "Τα κλειδιά βρίσκονται στο συρτάρι.",
    "el2": "Το ασανσέρ επισκευάστηκε χθες.",
    "fr1": "Les clés de la réserve sont chez le gardien.",
    "fr2": "L'hôpital a fermé ses urgences l'été dernier.",
    "de1": "Die Schlüssel für die Lagerräume hängen am Brett.",
    "de2": "Der Aufzug wird zweimal jährlich geprüft.",
    "vi1": "Chìa khóa dự phòng ở trong ngăn kéo.",
    "vi2": "Bệnh viện nằm bên kia sông.",
    "tr1": "Yedek anahtarlar ve mühür çekmecede duruyor.",
    "tr2": "IŞIK düğmesi kapının yanında.",
    "es1": "Las llaves del almacén las tiene el señor Núñez.",
    "pl1": "Zapasowe klucze leżą w szufladzie.",
    "pl2": "Łódź jest siedzibą archiwum.",
    "da1": "Lageret i København er åbent hver dag.",
    "emoji1": "Deploy finished 🚀 without errors",
    "emoji2": "Birthday cake 🎂 in the kitchen",
    "emoji3": "The 👩🏽‍💻 team moved to floor 3 🇯🇵",
    "mixed1": "服务器web01的RAM已升级到64GB。",
    "mixed2": "ユーザーIDはLDAPと同期されます。",
    "mixed3": "הקובץ config.yaml נמצא בתיקייה /etc/app",
    "mixed4": "رقم الطلب AB-2024/77 جاهز للشحن",
    "mixed5": "Сервис api-gateway слушает порт 8443",
}
QUERIES = [
    ("急诊", "zh1"),
    ("漏水", "zh2"),
    ("博物馆什么时候开放", "zh3"),
    ("非常灯", "ja1"),
    ("鍵", "ja2"),
    ("ﾌﾟﾘﾝﾀｰ", "ja3"),
    ("엘리베이터는", "ko1"),
    ("주차장이 어디", "ko2"),
    ("회의실을", "ko3"),
    ("مفتاح", "ar1"),
    ("المُفْتَاح", "ar1"),
    ("شاحنة", "ar2"),
    ("المصاعد صيانة", "ar3"),
    ("מפתחות", "he1"),
    ("הרכבת", "he2"),
    ("גינה", "he3"),
    ("चाबी", "hi1"),
    ("अस्पतालों", "hi2"),
    ("बिजली", "hi3"),
    ("กุญแจ", "th1"),
    ("ลิ้นชัก", "th1"),
    ("ลิฟต์", "th2"),
    ("สถานี", "th3"),
    ("ключами", "ru1"),
    ("лифт", "ru2"),
    ("БОЛЬНИЦЕ", "ru3"),
    ("лікарні", "uk1"),
    ("ґанок", "uk2"),
    ("κλειδι", "el1"),
    ("ΑΣΑΝΣΕΡ", "el2"),
    ("clé", "fr1"),
    ("hopital", "fr2"),
    ("urgence", "fr2"),
    ("Lagerraum", "de1"),
    ("Aufzüge", "de2"),
    ("chìa khóa", "vi1"),
    ("benh vien", "vi2"),
    ("anahtar", "tr1"),
    ("ışık", "tr2"),
    ("nunez", "es1"),
    ("llave", "es1"),
    ("klucz", "pl1"),
    ("lodz", "pl2"),
    ("siedziba", "pl2"),
    ("kobenhavn", "da1"),
    ("🚀", "emoji1"),
    ("🎂", "emoji2"),
    ("👩‍💻", "emoji3"),
    ("🇯🇵", "emoji3"),
    ("RAM 升级", "mixed1"),
    ("web01", "mixed1"),
    ("ldap", "mixed2"),
    ("ユーザー", "mixed2"),
    ("config.yaml", "mixed3"),
    ("הקובץ", "mixed3"),
    ("AB-2024/77", "mixed4"),
    ("للشحن", "mixed4"),
    ("api gateway", "mixed5"),
    ("порту", "mixed5"),
]


@pytest.fixture(scope="module", params=["NFC", "NFD"])
def memory(request: pytest.FixtureRequest) -> Iterator[FluxMem]:
    with FluxMem(None, None, FluxMemConfig(dense_weight=0)) as memory:
        memory.add_knowledge_nodes(
            [SemanticNode(id=id, content=unicodedata.normalize(request.param, text)) for id, text in FACTS.items()]
        )
        yield memory


@pytest.mark.parametrize(("query", "right"), QUERIES)
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_word_finds_its_fact(memory: FluxMem, query: str, right: str, form: str) -> None:
    hits = memory.retrieve(unicodedata.normalize(form, query), top_k=3)
    assert hits[0].node.id == right
    assert hits[0].signals["bm25"] > 0
    assert len(hits) == 1 or hits[0].score > hits[1].score
