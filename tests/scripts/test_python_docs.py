"""The questions over the docstrings of the standard library: each is answered where it says it is."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections import Counter
from pathlib import Path
from statistics import fmean
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "evaluation" / "python_docs.py"


@pytest.fixture(scope="module")
def python_docs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("python_docs", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["python_docs"] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


def test_there_are_120_different_questions_and_20_of_them_are_not_in_english(python_docs: ModuleType) -> None:
    lines = python_docs.QUESTIONS.read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines]
    assert len({entry["question"] for entry in entries}) == len(entries) == 120
    assert Counter(entry["language"] for entry in entries) == {"en": 100, "de": 4, "fr": 4, "es": 4, "zh": 4, "ko": 4}
    assert Counter(len(entry["evidence"]) for entry in entries) == {1: 110, 2: 10}
    titles = [part["title"] for entry in entries for part in entry["evidence"]]
    assert [title for title, count in Counter(titles).items() if count > 2] == []


def test_each_question_is_asked_again_in_other_words(python_docs: ModuleType) -> None:
    lines = python_docs.QUESTIONS.read_text(encoding="utf-8").splitlines()
    pairs = [(entry["question"], entry["reworded"]) for entry in map(json.loads, lines)]
    assert len({reworded for _, reworded in pairs}) == 120
    content = [[set(re.findall(r"\w{4,}", text.casefold())) for text in pair] for pair in pairs]
    shares = [len(first & second) / max(1, min(len(first), len(second))) for first, second in content]
    assert fmean(shares[:60]) < 0.5
    assert fmean(shares[60:]) < 0.25
    again = dict(pairs)
    loaded = python_docs.load_questions(python_docs.load_documents())
    assert [part for part in loaded if part.reworded != again[part.question]] == []


def test_every_anchor_stands_in_its_docstring(python_docs: ModuleType) -> None:
    documents = python_docs.load_documents()
    texts = {document.title: document.text for document in documents}
    questions = python_docs.load_questions(documents)
    evidence = [part for question in questions for part in question.evidence]
    assert [part for part in evidence if part.anchor not in texts[part.title]] == []
    assert [part.anchor for part in evidence if not 2 <= len(part.anchor.split()) <= 5] == []
    assert len(questions) > 110  # a few titles may be missing from an older or a newer Python
    assert len({document.source for document in documents}) >= 100
    assert len({part.title.rpartition(".")[0] for part in evidence}) >= 60


def test_documents_are_many_different_and_always_in_the_same_order(python_docs: ModuleType) -> None:
    documents = python_docs.load_documents()
    assert 2500 <= len(documents) <= 4000
    assert len({document.text for document in documents}) == len({document.title for document in documents})
    assert min(len(document.text) for document in documents) == 40
    assert documents == python_docs.load_documents()


def test_a_question_without_its_document_is_left_out(python_docs: ModuleType) -> None:
    documents = python_docs.load_documents()
    everything = python_docs.load_questions(documents)
    gone = everything[0].evidence[0].title
    kept = python_docs.load_questions(document for document in documents if document.title != gone)
    assert kept == [question for question in everything if all(part.title != gone for part in question.evidence)]
    assert everything[0] not in kept
