"""Quotes of a forgotten text are found word for word and nearly; what only resembles it is left alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluxmem_local.text.quotes import REDACTED, Quotes

GATE = "The north gate opens with the green key."
LONG = "Keys of the house hang by the door, but the one of the cellar lies under the third stone on the left."


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (GATE, "[forgotten]."),
        (f"I read: {GATE} So I went.", "I read: [forgotten]. So I went."),
        ("the NORTH gate --\n opens 'with the green key'!", "[forgotten]'!"),
        ("the north gate never opens with the green key", REDACTED),
        (f"{GATE} {GATE}", "[forgotten]."),
        ("north gate opens with the green key, they said", "[forgotten], they said"),
        ("a gate opens with a key", None),
        ("The south door opens with the red key.", None),
        ("the green key", None),
        ("", None),
    ],
)
def test_what_is_a_quote_of_a_sentence(text: str, left: str | None) -> None:
    assert Quotes([GATE]).redacted(text) == (text if left is None else left)
    assert Quotes([GATE]).found_in(text) is (left is not None)


def test_eight_words_in_a_row_are_a_quote_of_a_long_text() -> None:
    quotes = Quotes([LONG])
    assert quotes.redacted("so the one of the cellar lies under the third") == "so [forgotten]"
    assert quotes.redacted("the one of the cellar is open") == "the one of the cellar is open"


@pytest.mark.parametrize(
    ("text", "found", "left"),
    [
        ("rent 900", ["Rent 900.", "the rent 900 is due"], ["[forgotten].", "the rent 900 is due"]),
        ("xylophone-4711", ["use Xylophone 4711 here"], ["use [forgotten] here"]),
        ("北门用绿色的钥匙打开。", ["他说北门用绿色的钥匙打开了", "北门"], ["他说[forgotten]了", "北门"]),
        ("ประตูเปิดด้วยกุญแจเขียว", ["เขาว่าประตูเปิดด้วยกุญแจเขียวนะ"], ["เขาว่า[forgotten]นะ"]),
    ],
)
def test_short_texts_and_scripts_without_spaces(text: str, found: list[str], left: list[str]) -> None:
    assert [Quotes([text]).redacted(each) for each in found] == left


def test_what_others_say_too_is_no_quote() -> None:
    quotes = Quotes(["open the red box on the table", "go to the cellar"], but_not=["open the blue box on the table"])
    assert quotes.redacted("open the green box on the table") == "open the green box on the table"
    assert quotes.redacted("then go to the cellar") == "then [forgotten]"
    assert not Quotes(["go to the cellar"], but_not=["go to the cellar"]).found_in("go to the cellar")


def test_no_text_has_no_quotes() -> None:
    assert not Quotes(["", " ", "…"])
    assert Quotes(()).redacted(GATE) == GATE


def test_many_texts_at_once() -> None:
    texts = [f"Number {number} of the long list of secrets is {number * 7}" for number in range(500)]
    quotes = Quotes(texts)
    assert quotes.redacted(f"he said: {texts[77]}!") == "he said: [forgotten]!"
    assert quotes.redacted("nothing of all that") == "nothing of all that"


names = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]
words = st.lists(st.sampled_from(names), min_size=3, max_size=12).map(" ".join)


@given(words, words, words)
def test_a_whole_text_is_always_found_and_never_left(text: str, before: str, after: str) -> None:
    left = Quotes([text]).redacted(f"{before} {text} {after}")
    assert text not in left
    assert REDACTED in left
