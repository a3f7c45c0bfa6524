from __future__ import annotations

import pytest

from fluxmem_local.agent.wording import words_of


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("The lease ends in May.", ["May"]),
        ("Rent rises May 1.", ["May", "1"]),
        ("Did Will or Ana pay?", ["Will", "Ana"]),
        ("What is the budget of WHO?", ["WHO"]),
        ("May I come?", []),
        ("Where Will the Meeting Be?", ["Meeting"]),
        ("Wo können Sie parken?", []),
    ],
)
def test_an_empty_word_written_large_is_a_name_unless_others_are_large_too(text: str, names: list[str]) -> None:
    assert [word.text for word in words_of(text) if word.is_told] == names
