from __future__ import annotations

import unicodedata

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from fluxmem_local.errors import InvalidInputError
from fluxmem_local.text import chunk_text, content_key, is_blank, tokenize, tokenize_query

PARTS = [*"ab.!?。中文ไำก \n\t#`-1", "e\u0301", "👩\u200d👧", "🏽", "🇩🇪", "한", "\n\n", "\n# ", "\n```\n", "\n- "]
MIXED = st.lists(st.sampled_from(PARTS), max_size=80).map("".join)


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\u200b\ufeff", "\x00\x1b", "\u3000", "\u2060\u00ad", "\u3164"])
def test_text_without_a_visible_character_is_blank(text: str) -> None:
    assert is_blank(text)


@pytest.mark.parametrize("text", ["a", ".", "中", "👩‍👩‍👧‍👦", " \u0301", "0"])
def test_text_with_a_visible_character_is_not_blank(text: str) -> None:
    assert not is_blank(text)


@pytest.mark.parametrize("call", [is_blank, content_key, tokenize, tokenize_query, lambda text: chunk_text(text, 5)])
def test_what_is_no_text_is_refused(call) -> None:
    with pytest.raises(InvalidInputError, match="NoneType is no text; give a str"):
        call(None)


def test_equal_contents_share_their_key() -> None:
    variants = ["DGIA café", "dgia CAFE\u0301", " DGIA\n café ", "Dgia\u00a0Café"]
    assert len({content_key(text) for text in variants}) == 1
    assert content_key("DGIA") != content_key("DGIB")
    assert content_key("a b") != content_key("ab")
    assert len(content_key("\ud800")) == 64


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("NXR24", {"nxr24", "nxr", "24"}),
        ("snake_case", {"snake_case", "snake", "case"}),
        ("file.csv.", {"file.csv", "file", "csv"}),
        ("v1.2.3", {"v1.2.3", "v1", "1", "2", "3"}),
        ("ERR-404", {"err-404", "err", "404"}),
        ("getUserName", {"getusername", "get", "user", "name"}),
        ("HTTPServer", {"httpserver", "http", "server"}),
        ("(https://example.com/a?b=1)", {"https://example.com/a?b=1", "example", "com"}),
        ("C++ and C#", {"c++", "c#"}),
        ("don’t", {"don't"}),
        ("٢٠٢٤", {"2024"}),
        ("100€", {"100", "€"}),
    ],
)
def test_names_and_numbers_are_found_whole_and_by_parts(text: str, tokens: set[str]) -> None:
    assert tokens <= set(tokenize(text))


@pytest.mark.parametrize("text", ["café", "Ångström", "한국어", "がぎ", "Việt Nam", "किताब़"])
def test_composed_and_decomposed_forms_give_equal_tokens(text: str) -> None:
    assert tokenize(unicodedata.normalize("NFC", text)) == tokenize(unicodedata.normalize("NFD", text))


def test_accents_may_be_left_out() -> None:
    assert "cafe" in tokenize("café")
    assert "cafe" in tokenize_query("cafe")


@pytest.mark.parametrize(
    ("written", "typed"), [("Łódź", "lodz"), ("København", "kobenhavn"), ("IŞIK", "ışık"), ("Đà Nẵng", "da nang")]
)
def test_letters_that_a_keyboard_lacks_may_be_left_plain(written: str, typed: str) -> None:
    assert set(tokenize(written)) & set(tokenize_query(typed))


def test_chinese_is_characters_and_pairs() -> None:
    assert tokenize("猫が好") == ["猫", "が", "好", "猫が", "が好"]


def test_emoji_are_tokens_whatever_their_style_or_skin() -> None:
    assert tokenize("❤️ 👍🏽 👩‍💻 🇩🇪") == ["❤", "👍", "👩‍💻", "🇩🇪"]


def test_stems_know_their_language() -> None:
    assert "cat·french" not in tokenize("The cats sleep in the house")
    assert "cat·english" in tokenize("The cats sleep in the house")
    assert "kind·german" in tokenize("Die Kinder sind nicht im Haus")
    assert tokenize("Häuser", language="german") == ["häuser", "hauser", "haus·german"]
    with pytest.raises(InvalidInputError, match="language='klingon' has no stemmer here; known are english, german"):
        tokenize("word", language="klingon")


def test_a_query_of_one_word_meets_its_document_in_another_language() -> None:
    assert set(tokenize_query("dormir")) & set(tokenize("Les chats dormaient dans la maison"))
    assert set(tokenize_query("Kind")) & set(tokenize("Die Kinder sind nicht im Haus"))
    assert not set(tokenize_query("notes")) & set(tokenize("It is not there"))


def test_tokens_of_a_voted_query_still_meet_a_document_without_a_vote() -> None:
    assert "cat·english" in set(tokenize_query("où sont les cats")) & set(tokenize("Cat"))


def test_optional_marks_of_arabic_and_hebrew_and_vowels_of_hindi() -> None:
    assert "القطط" in tokenize("القِطَطُ")
    assert "חתול" in tokenize("החתול")
    assert set(tokenize("किताब")).isdisjoint(tokenize("कतब"))


@given(st.text(max_size=80))
def test_tokens_are_stable_never_empty_and_hold_no_space(text: str) -> None:
    tokens = tokenize(text)
    assert tokens == tokenize(text)
    assert all(token.split() == [token] for token in tokens)


def test_a_query_holds_the_tokens_of_an_english_document_of_the_same_text() -> None:
    text = "The NXR24 reboots when file.csv is open, see https://example.com/x"
    assert tokenize(text) == tokenize_query(text)


@pytest.mark.parametrize("size", [0, -1, True, 1.5, None])
def test_chunk_size_under_one_is_refused_with_a_remedy(size) -> None:
    with pytest.raises(InvalidInputError, match="is no chunk size; give a whole number of at least 1"):
        chunk_text("text", size)


def _visible(text: str) -> str:
    return regex.sub(r"[\s\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}\u2800]", "", text)


@given(MIXED | st.text(max_size=120), st.integers(1, 40))
def test_chunks_lose_nothing_and_fit(text: str, size: int) -> None:
    chunks = chunk_text(text, size)
    assert _visible("".join(chunks)) == _visible(text)
    assert not any(is_blank(chunk) for chunk in chunks)
    assert all(len(chunk) <= size or len(regex.findall(r"\X", chunk)) == 1 for chunk in chunks)
    assert chunks == chunk_text(text, size)


@given(st.lists(st.from_regex(r"[a-z]{1,12}[.,!]?", fullmatch=True), max_size=40), st.integers(13, 40))
def test_no_word_that_fits_is_cut(words: list[str], size: int) -> None:
    assert [word for chunk in chunk_text(" ".join(words), size) for word in chunk.split()] == words


@given(MIXED, st.integers(1, 12))
def test_no_grapheme_is_cut(text: str, size: int) -> None:
    def graphemes(pieces: list[str]) -> list[str]:
        every = [found for piece in pieces for word in piece.split() for found in regex.findall(r"\X", word)]
        return [found for found in every if not is_blank(found)]

    assert graphemes(chunk_text(text, size)) == graphemes([text])


def test_a_long_word_is_cut_between_graphemes() -> None:
    assert chunk_text("abcdefghij", 4) == ["abcd", "efgh", "ij"]
    assert chunk_text("e\u0301" * 5, 3) == ["e\u0301"] * 5
    assert chunk_text("👩‍👩‍👧‍👦👩‍👩‍👧‍👦", 3) == ["👩‍👩‍👧‍👦", "👩‍👩‍👧‍👦"]
    assert chunk_text("好。🏽好！\u0301", 2) == ["好", "。🏽", "好", "！\u0301"]
    assert max(map(len, chunk_text("a" + "\u0301" * 1000, 10))) == 64


def test_chunks_end_at_the_strongest_joint() -> None:
    text = "# One\n\nFirst thing. Second thing.\n\n## Two\n\n```py\nx = 1\n\ny = 2\n```\n\n- item a\n- item b\n"
    assert chunk_text(text, 45) == [
        "# One\n\nFirst thing. Second thing.",
        "## Two\n\n```py\nx = 1\n\ny = 2\n```",
        "- item a\n- item b",
    ]
    assert chunk_text(text, 1000) == [text.strip()]


def test_a_hash_in_code_is_no_heading() -> None:
    code = "```\na = 1\n# note\nb = 2\n```"
    assert chunk_text(f"Some words before it.\n\n{code}", len(code) + 4) == ["Some words before it.", code]


def test_sentences_before_words_and_wrapped_lines() -> None:
    assert chunk_text("One two three. Four\nfive six seven.", 22) == ["One two three.", "Four\nfive six seven."]
    assert chunk_text("猫很可爱。狗也很可爱。", 8) == ["猫很可爱。", "狗也很可爱。"]


@pytest.mark.parametrize(
    ("text", "size", "count"),
    [("x" * 200_000, 512, 391), ("A sentence on cats.\n\n" * 250_000, 512, 10_000), ("\n" * 1_000_000 + "a", 9, 1)],
)
def test_large_texts_are_cut_whole(text: str, size: int, count: int) -> None:
    chunks = chunk_text(text, size)
    assert len(chunks) == pytest.approx(count, rel=0.1)
    assert sum(len(chunk.split()) for chunk in chunks) == (len(text.split()) if size == 9 or " " in text else count)


def test_every_character_of_unicode_can_be_tokenized() -> None:
    # The two Unicode tables in use differ in age, so a digit of one may be unknown to the other.
    for start in range(0, 0x30000, 0x4000):
        characters = [chr(code) for code in range(start, start + 0x4000)]
        assert [token for token in tokenize(" ".join(characters)) if token.split() != [token]] == []
