"""Templates: what a text has in a skill's slots, and the text that values make."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluxmem_local.graph import bind, fill, slots_in

PUT = "put <1:item> in <2:item>"


@pytest.mark.parametrize(
    ("template", "text", "known", "values"),
    [
        (PUT, "put gray coat in wardrobe", None, {1: "gray coat", 2: "wardrobe"}),
        (PUT, "Put  Gray Coat\nIN wardrobe", None, {1: "Gray Coat", 2: "wardrobe"}),
        (PUT, "take gray coat", None, None),
        (PUT, "put gray coat in ", None, None),
        # A value that holds the template's own words is read where it is known.
        (PUT, "put box in box in shelf", None, {1: "box", 2: "box in shelf"}),
        (PUT, "put box in box in shelf", {1: "box in box"}, {1: "box in box", 2: "shelf"}),
        (PUT, "put tie in shelf", {1: "coat"}, None),
        ("put the <1:item> in its usual place", "put the white duvet in its usual place", None, {1: "white duvet"}),
        ("copy <1:item> to <1:item>.bak", "copy a.txt to a.txt.bak", None, {1: "a.txt"}),
        ("copy <1:item> to <1:item>.bak", "copy a.txt to b.txt.bak", None, None),
        ("<1:item><2:item>", "ab", None, None),
        ("restart it", "restart it", None, {}),
        ("restart it", "restart it now", None, None),
        ("<3:item>İ", "xİ", None, {3: "x"}),
    ],
)
def test_values_are_read_from_a_text(
    template: str, text: str, known: dict[int, str] | None, values: dict[int, str] | None
) -> None:
    assert bind(template, text, known) == values


def test_a_slot_without_a_value_stays() -> None:
    assert fill(PUT, {1: "coat"}) == "put coat in <2:item>"
    assert fill(PUT, {1: "coat", 2: ""}) == "put coat in <2:item>"
    assert slots_in(PUT) == {1, 2}
    assert slots_in("put <b>coat</b> in it") == frozenset()


_VALUES = st.text(alphabet="abc -/.", min_size=1, max_size=12).map(lambda text: " ".join(text.split())).filter(bool)


@given(st.tuples(_VALUES, _VALUES))
def test_what_was_filled_in_is_read_again(values: tuple[str, str]) -> None:
    given_values = dict(enumerate(values, start=1))
    assert bind("put <1:item> => <2:item>!", fill("put <1:item> => <2:item>!", given_values)) == given_values


def test_a_long_text_is_read_at_once() -> None:
    template = " ".join(f"<{number}:item> a" for number in range(1, 60))
    assert bind(template, "a " * 100_000 + "b") is None
