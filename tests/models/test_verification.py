"""Verification by each method, and calibration, with models that say what a test wants them to say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fluxmem_local.errors import ImportFormatError, InvalidInputError, ModelOutputError
from fluxmem_local.models.calibration import LabelledQuestion, calibrate, labelled_questions
from fluxmem_local.models.imported import import_model, set_verification
from fluxmem_local.models.llm import TransformersLLM
from fluxmem_local.models.prompted import PromptedLLM
from fluxmem_local.models.registry import locate_model, registry_directory
from fluxmem_local.models.verification import Scale, gains

CLAIMS = ["Where is Paris?", "Where is Paris?", "What do cats do?", "Where is Paris?"]
EVIDENCES = [
    "Paris is the capital of France, and lies on the Seine.",
    "Bread.",
    "The cat sat on the mat. A kitten slept in the sun.",
    "Rome is a city." + " It is old." * 30,
]
QUESTIONS = [
    LabelledQuestion(f"question {number}?", f"fact {number} right", (f"other {number}", f"more {number}", "none"))
    for number in range(20)
]


class Judging(PromptedLLM):
    """Finds texts with 'right' in them by the methods it is told, and tosses a coin by the others."""

    def __init__(self, *able: str, verification: str = "json", scale: Scale | None = None, lift: float = 2.0) -> None:
        super().__init__(verification=verification, scale=scale)
        self.able = able
        self.lift = lift
        self.coin = np.random.default_rng(0)
        self.asked: list[str] = []

    def prompt_budget(self, max_new_tokens):
        return 1000

    def count_tokens(self, text):
        return len(text.split())

    async def generate(self, prompt, system_prompt=None, temperature=0.7):
        raise AssertionError("no free text is asked for")

    def _says(self, method, text):
        self.asked.append(method)
        return self.lift * (" right" in text) if method in self.able else self.coin.normal()

    async def score_batch(self, contexts, continuations):
        return np.float32([-5 + self._says("likelihood", context) for context in contexts])

    async def choose_batch(self, prompts, choices):
        assert [spellings[0] for spellings in choices] == ["Yes", "No"]
        odds = np.float32([self._says("verdict", prompt) for prompt in prompts])
        return np.stack([odds - 1, np.float32([-1] * len(prompts))], axis=1)

    async def generate_json(self, prompt, schema, max_new_tokens):
        if "unreadable" in self.able:
            raise ModelOutputError("cut off")
        return {"score": float(np.clip(0.5 + self._says("json", prompt) / 4, 0, 1))}


def test_a_scale_keeps_order_where_a_logistic_one_would_say_one():
    scale = Scale(0.9, 0.67)
    far = np.linspace(-60, 60, 5001)
    values = scale(far)
    assert values.dtype == np.float32
    assert ((values > 0) & (values < 1)).all()
    assert (np.diff(values) > 0).all()
    np.testing.assert_allclose(scale(np.float32([0.9, 0.9 + 0.67, 0.9 - 0.67])), [0.5, 0.75, 0.25], atol=1e-6)
    # Two good texts stay apart by more than noise.
    assert scale(np.float32([3.0]))[0] - scale(np.float32([2.5]))[0] > 0.01


@pytest.mark.parametrize("method", ["likelihood", "verdict"])
async def test_a_batch_gives_each_pair_what_it_gets_alone(method):
    llm = TransformersLLM("tiny-llm", dtype="float32")
    llm._verification = method
    batch = await llm.verify_batch(CLAIMS, EVIDENCES)
    alone = [await llm.verify(*pair) for pair in zip(CLAIMS, EVIDENCES, strict=True)]
    np.testing.assert_allclose(batch, alone, atol=1e-4)
    assert ((batch > 0) & (batch < 1)).all()
    assert len(set(batch.tolist())) == 4


async def test_a_verdict_is_the_odds_of_yes_at_the_answers_first_token():
    from fluxmem_local.models.llm import _chat
    from fluxmem_local.models.loading import load_llm

    llm = TransformersLLM("tiny-llm")
    loaded = load_llm("tiny-llm")
    prompts = ["Is the sea wet? Say Yes or No.", "Is it? " + "Well, " * 40 + "Yes or No?"]
    likelihoods = await llm.choose_batch(prompts, [("Yes", " yes"), ("No",)])
    import torch

    for prompt, row in zip(prompts, likelihoods, strict=True):
        ids = torch.tensor([_chat(loaded.tokenizer, prompt, None)])
        with torch.inference_mode():
            logs = loaded.model(input_ids=ids).logits[0, -1].float().log_softmax(-1)
        first = {
            word: loaded.tokenizer(word, add_special_tokens=False)["input_ids"][0] for word in ("Yes", " yes", "No")
        }
        yes = torch.logsumexp(logs[sorted({first["Yes"], first[" yes"]})], 0)
        np.testing.assert_allclose(row, [yes.item(), logs[first["No"]].item()], atol=1e-4)
    assert (await llm.choose_batch([], [("Yes",), ("No",)])).shape == (0, 2)


async def test_the_beginning_that_all_prompts_share_is_read_once(monkeypatch):
    from fluxmem_local.models.loading import load_llm

    llm = TransformersLLM("tiny-llm")
    model = load_llm("tiny-llm").model
    read = []
    forward = model.forward
    monkeypatch.setattr(model, "forward", lambda *a, **k: read.append(tuple(k["input_ids"].shape)) or forward(*a, **k))
    # The name of the cache's argument is looked up in the signature.
    model.forward.__signature__ = __import__("inspect").signature(forward)
    prompts = [f"Here is a question about the capital of France and a document, {'so ' * 30} {n}." for n in range(6)]
    await llm.choose_batch(prompts, [("Yes",), ("No",)])
    (shared, rows) = read
    assert shared[0] == 1
    assert shared[1] > 60
    assert rows[0] == 6
    assert rows[1] < 20


async def test_the_method_is_the_registered_one_and_none_asks_nothing():
    pairs = (["is it?"] * 3, ["fact 1 right", "other", " "])
    for method in ("likelihood", "verdict", "json"):
        llm = Judging(method, verification=method, scale=Scale(1.0, 1.0))
        values = await llm.verify_batch(*pairs)
        assert set(llm.asked) == {method}
        assert llm.verifies_claims
        np.testing.assert_allclose(values, [1.0, 0.5, 0] if method == "json" else [2 / 3 + 1 / 12, 0.25, 0], atol=1e-5)
    silent = Judging("likelihood", verification="none")
    np.testing.assert_array_equal(await silent.verify_batch(*pairs), np.float32([0.5, 0.5, 0]))
    assert silent.asked == []
    assert not silent.verifies_claims
    with pytest.raises(InvalidInputError, match="verification='guess' is unknown; allowed are likelihood, verdict"):
        Judging(verification="guess")


async def test_what_a_claim_has_in_any_case_is_taken_off():
    class Common(Judging):
        async def score_batch(self, contexts, continuations):
            return np.float32([-1.0 if "common" in text else -9.0 for text in continuations])

    values = await gains(Common(), "likelihood", [("a common claim", "x"), ("a rare claim", "x")])
    np.testing.assert_array_equal(values, np.float32([0, 0]))


@pytest.mark.parametrize(
    ("able", "method"),
    [
        (("likelihood",), "likelihood"),
        (("verdict",), "verdict"),
        (("json",), "json"),
        (("verdict", "json"), "verdict"),
        (("likelihood", "verdict", "json"), "likelihood"),
        ((), "none"),
        (("unreadable",), "none"),
    ],
)
async def test_calibration_picks_the_cheapest_method_that_has_a_signal(able, method):
    told = []
    measured = await calibrate(Judging(*able), QUESTIONS, told.append)
    assert measured.method == method
    assert [report.method for report in measured.reports] == ["likelihood", "verdict", "json"]
    assert [report.auc == 1.0 for report in measured.reports] == [report.method in able for report in measured.reports]
    assert told == [f"measuring {name} on 20 questions" for name in ("likelihood", "verdict", "json")]
    if method in ("likelihood", "verdict"):
        # Halfway between what facts gain and what distractors gain.
        assert measured.chosen.scale == Scale(1.0, 0.25)
    if "unreadable" in able:
        assert measured.reports[2].auc is None
        assert not measured.reports[2].has_signal


async def test_a_better_method_wins_over_a_cheaper_one():
    class Half(Judging):
        def _says(self, method, text):
            right = super()._says(method, text)
            return right if method == "verdict" or self.coin.random() < 0.6 else float(self.coin.normal())

    questions = [LabelledQuestion(f"q {n}?", f"fact {n} right", ("a", "b", "c")) for n in range(60)]
    measured = await calibrate(Half("likelihood", "verdict"), questions)
    assert measured.reports[0].has_signal
    assert measured.method == "verdict"


def test_the_shipped_questions_are_hard_for_a_count_of_words():
    questions = labelled_questions()
    assert len(questions) >= 60
    assert len({question.language for question in questions}) >= 8
    assert len({question.question for question in questions}) == len(questions)
    assert all(len(question.distractors) == 3 for question in questions)
    assert all(question.fact not in question.distractors for question in questions)

    def share(asked: str, text: str) -> float:
        words = set(asked.casefold().split())
        return len(words & set(text.casefold().split())) / len(words)

    first = [
        share(question.question, question.fact) > max(share(question.question, text) for text in question.distractors)
        for question in questions
    ]
    assert sum(first) / len(first) < 0.5


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"question": "a", "fact": "b"}', '{"question": "a", "fact": " ", "distractors": ["c"]}']
)
def test_a_line_that_is_no_labelled_question_is_named(tmp_path, line):
    file = tmp_path / "own.jsonl"
    good = json.dumps({"question": "a?", "fact": "b", "distractors": ["c"]})
    file.write_text(f"{good}\n\n{line}\n")
    with pytest.raises(ImportFormatError, match=r"own\.jsonl, line 3: give"):
        labelled_questions(file)
    file.write_text(f"{good}\n")
    assert labelled_questions(file) == (LabelledQuestion("a?", "b", ("c",)),)
    file.write_text("\n")
    with pytest.raises(ImportFormatError, match="no labelled questions"):
        labelled_questions(file)
    with pytest.raises(ImportFormatError, match="cannot be read"):
        labelled_questions(tmp_path / "absent.jsonl")


async def test_what_was_measured_is_registered_for_an_imported_model_and_followed(model_cache: Path):
    import_model(registry_directory() / "tiny" / "llm", "mine")
    before = locate_model("mine").entry
    assert (before.verification, before.verification_auc) == ("likelihood", None)
    set_verification("mine", method="verdict", auc=0.75, neutral=1.5, spread=0.25)
    entry = locate_model("mine").entry
    assert (entry.verification, entry.verification_auc) == ("verdict", 0.75)
    assert entry.files == before.files
    llm = TransformersLLM("mine")
    assert (llm._verification, llm._scale) == ("verdict", Scale(1.5, 0.25))
    assert 0 < await llm.verify("Is Paris big?", "Paris is big.") < 1
    set_verification("mine", method="none", auc=0.5, neutral=None, spread=None)
    silent = TransformersLLM("mine")
    assert await silent.verify("Is Paris big?", "Paris is big.") == 0.5
    assert silent._loaded is None
    assert not silent.verifies_claims
    with pytest.raises(InvalidInputError, match="'tiny-llm' is not one that was imported"):
        set_verification("tiny-llm", method="none", auc=0.5, neutral=None, spread=None)


async def test_the_tiny_model_has_no_signal(tiny_llm):
    measured = await calibrate(tiny_llm, [question for question in labelled_questions() if question.language == "en"])
    assert measured.method == "none"
    assert [report.has_signal for report in measured.reports] == [False, False, False]
