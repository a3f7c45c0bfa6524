from __future__ import annotations

import socket

import numpy as np
import pytest

from fluxmem_local.errors import BlankTextError, InvalidInputError, ModelOutputError
from fluxmem_local.interfaces import BaseLLM
from fluxmem_local.testing import FailingLLM, HashEmbedder, ScriptedLLM


async def test_texts_that_share_words_are_similar() -> None:
    vectors = await HashEmbedder(256).embed_batch(
        ["Ranking the countries by medals", "rank countries by medal", "boil two eggs"]
    )
    assert vectors.shape == (3, 256)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)
    similarity = vectors @ vectors.T
    assert similarity[0, 1] > 0.8
    assert similarity[0, 2] < 0.3


async def test_a_text_has_one_vector_alone_and_in_a_batch() -> None:
    one = await HashEmbedder().embed_text("北京是中国的首都")
    again = (await HashEmbedder().embed_batch(["other", "北京是中国的首都"]))[1]
    np.testing.assert_array_equal(one, again)
    # A fixed value: the hash must not depend on the process or the machine.
    assert np.flatnonzero(await HashEmbedder(8).embed_text("medal")).tolist() == [0]


async def test_signs_alone_have_a_unit_vector() -> None:
    assert np.linalg.norm(await HashEmbedder().embed_text("?!…")) == pytest.approx(1.0)


async def test_empty_batch_keeps_the_dimension() -> None:
    assert (await HashEmbedder(32).embed_batch([])).shape == (0, 32)


async def test_blank_text_is_refused() -> None:
    with pytest.raises(BlankTextError):
        await HashEmbedder().embed_text(" \n")
    with pytest.raises(BlankTextError):
        await HashEmbedder().embed_batch(["a", ""])


def test_fingerprint_names_the_size() -> None:
    assert HashEmbedder(64).fingerprint == HashEmbedder(64).fingerprint != HashEmbedder(32).fingerprint
    with pytest.raises(InvalidInputError):
        HashEmbedder(0)


async def test_scripted_answers_come_in_order_then_the_default() -> None:
    llm = ScriptedLLM({"generate": ["one", "two"], "verify": lambda claim, evidence: float(claim == evidence)})
    assert [await llm.generate("a"), await llm.generate("b"), await llm.generate("c")] == ["one", "two", ""]
    np.testing.assert_array_equal(await llm.verify_batch(["x", "y"], ["x", "z"]), np.float32([1, 0]))
    assert [call.kind for call in llm.calls] == ["generate"] * 3 + ["verify_batch", "verify", "verify"]
    assert llm.calls_of("generate")[1].arguments == {"prompt": "b", "system_prompt": None, "temperature": 0.7}
    assert llm.calls_of("verify_batch")[0].arguments == {"claims": ["x", "y"], "evidences": ["x", "z"]}


async def test_scripted_defaults_lead_to_nothing() -> None:
    llm = ScriptedLLM()
    assert await llm.verify("a", "b") == 0.5
    assert await llm.attribute_failure("c", "f") == {
        "type": "none",
        "action": "none",
        "details": "",
        "targets": [],
        "granularity": None,
    }
    assert [await llm.extract_skills(["t"]), await llm.refine_skill("s", "f")] == ["", ""]
    assert await llm.reshape_content("n", "fine", "c") == ""
    assert await llm.generate_batch(["a", "b"]) == ["", ""]


async def test_scripted_exceptions_are_raised() -> None:
    llm = ScriptedLLM({"generate": [ModelOutputError("cut off")]})
    with pytest.raises(ModelOutputError, match="cut off"):
        await llm.generate("a")


def test_a_script_for_an_unknown_call_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="'atribute'"):
        ScriptedLLM({"atribute": []})


async def test_failing_llm_fails_each_call() -> None:
    llm: BaseLLM = FailingLLM()
    calls = [
        llm.generate("a"),
        llm.verify("a", "b"),
        llm.verify_batch(["a"], ["b"]),
        llm.generate_batch(["a"]),
        llm.extract_skills("t"),
        llm.refine_skill("s", "f"),
        llm.attribute_failure("c", "f"),
        llm.reshape_content("n", "fine", "c"),
    ]
    for call in calls:
        with pytest.raises(ModelOutputError):
            await call
    assert isinstance(llm, FailingLLM)
    assert llm.num_calls == len(calls)


def test_the_suite_cannot_leave_the_machine(no_network: list[object]) -> None:
    with socket.socket() as guarded, pytest.raises(PermissionError):
        guarded.connect(("192.0.2.1", 80))
    with pytest.raises(socket.gaierror):
        socket.getaddrinfo("example.org", 443)
    assert no_network == [("192.0.2.1", 80), "example.org"]
    no_network.clear()
