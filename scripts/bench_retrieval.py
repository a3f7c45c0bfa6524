"""Measure retrieval: recall of evidence by arm and category, each signal's share, learning, filters, and time.

Two evaluations: LoCoMo's conversations (``--locomo DIR``, which you have), and 120 questions on the docstrings of the
Python that runs. Every arm has the same facts, embedder and tokens:

    dense       cosine alone                     bm25       BM25 alone, on stemmed words
    reference   dense top 3k, min-max normalised, plus half of BM25 on raw words
    sum         the best 100 of each, min-max normalised, dense plus half of BM25
    rrf         reciprocal rank fusion of both, k = 60
    ours        agent.retrieve with the default settings, without the language model
    -NAME       ours without one signal          ours+llm   with verification (``--llm``)

Recall at k is the share of a question's evidence among the first k.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from evaluation.locomo import Conversation, load_conversations
from evaluation.python_docs import Question, load_documents, load_questions
from evaluation.remembering import Remembering
from rank_bm25 import BM25Okapi

from fluxmem_local import FluxMemAgent, FluxMemConfig
from fluxmem_local.agent.builder import build_embedder, build_llm
from fluxmem_local.graph import SemanticNode
from fluxmem_local.interfaces import BaseEmbedder, BaseLLM
from fluxmem_local.retrieval import Retriever
from fluxmem_local.types import FloatArray, Layer, Scope

CUTS = (5, 10)
WEIGHTS = ("dense", "bm25", "context", "statement", "speaker", "date")
POOL = 100


@dataclass(frozen=True, slots=True)
class Asked:
    question: str
    category: str
    evidence: frozenset[str]


@dataclass(slots=True)
class Corpus:
    """Facts in an agent's memory, and questions with the ids of the facts that answer them."""

    agent: FluxMemAgent
    embedder: Remembering
    asked: list[Asked]
    ids: list[str] = field(default_factory=list)
    matrix: FloatArray | None = None
    raw: BM25Okapi | None = None

    def prepare(self) -> None:
        nodes = self.agent.store.select(layers=(Layer.SEMANTIC,))
        self.ids = [node.id for node in nodes]
        self.matrix = np.stack([node.embedding for node in nodes if node.embedding is not None])
        self.raw = BM25Okapi([node.content.lower().split() for node in nodes])


Arm = Callable[[Corpus, str, int], Awaitable[list[str]]]


async def conversation_corpus(conversation: Conversation, embedder: Remembering, llm: BaseLLM | None) -> Corpus:
    agent = FluxMemAgent(llm, embedder)
    nodes = [
        SemanticNode(
            content=turn.content,
            source=turn.session,
            chunk_index=turn.place,
            metadata={"dia_id": turn.dia_id, "date": turn.date},
        )
        for turn in conversation.turns
    ]
    ids = await agent.add_knowledge_nodes(nodes)
    of_turn = dict(zip((turn.dia_id for turn in conversation.turns), ids, strict=True))
    asked = [
        Asked(question.question, question.category, frozenset(of_turn[id] for id in question.evidence))
        for question in conversation.questions
    ]
    return Corpus(agent, embedder, asked)


async def docs_corpus(embedder: Remembering, llm: BaseLLM | None) -> tuple[Corpus, list[Question]]:
    agent = FluxMemAgent(llm, embedder)
    documents = load_documents()
    chunks: dict[str, list[str]] = {}
    for document in documents:
        chunks[document.title] = await agent.add_knowledge(
            f"# {document.title}\n\n{document.text}", f"{document.title}.md"
        )
    questions = load_questions(documents)
    asked = []
    for question in questions:
        evidence = set()
        for part in question.evidence:
            nodes = agent.store.get_many(chunks[part.title])
            evidence.add(next(node.id for node in nodes if _plain(part.anchor) in _plain(node.content)))
        language = "English" if question.language == "en" else "other language"
        asked.append(Asked(question.question, language, frozenset(evidence)))
    return Corpus(agent, embedder, asked), questions


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text)


async def dense(corpus: Corpus, question: str, top_k: int) -> list[str]:
    vector = await corpus.embedder.embed_text(question)
    return [id for id, _ in corpus.agent.store.nearest(Layer.SEMANTIC, vector, top_k)]


async def bm25(corpus: Corpus, question: str, top_k: int) -> list[str]:
    return [id for id, _ in corpus.agent.store.lexical(Layer.SEMANTIC, question, top_k)]


async def reference(corpus: Corpus, question: str, top_k: int) -> list[str]:
    assert corpus.matrix is not None
    assert corpus.raw is not None
    cosines = corpus.matrix @ await corpus.embedder.embed_text(question)
    nearest = np.argsort(-cosines, kind="stable")[: 3 * top_k]
    scores = _min_max(cosines[nearest]) + 0.5 * _min_max(corpus.raw.get_scores(question.lower().split())[nearest])
    return [corpus.ids[place] for place in nearest[np.argsort(-scores, kind="stable")][:top_k]]


async def weighted_sum(corpus: Corpus, question: str, top_k: int) -> list[str]:
    by_meaning, by_words = await _pools(corpus, question)
    joined = list(dict.fromkeys([*by_meaning, *by_words]))
    scores = _min_max(np.array([by_meaning.get(id, min(by_meaning.values())) for id in joined]))
    scores = scores + 0.5 * _min_max(np.array([by_words.get(id, 0.0) for id in joined]))
    return [joined[place] for place in np.argsort(-scores, kind="stable")[:top_k]]


async def reciprocal_rank(corpus: Corpus, question: str, top_k: int) -> list[str]:
    scores: dict[str, float] = {}
    for ranked in await _pools(corpus, question):
        for rank, id in enumerate(ranked):
            scores[id] = scores.get(id, 0.0) + 1 / (60 + rank + 1)
    return sorted(scores, key=lambda id: -scores[id])[:top_k]


async def _pools(corpus: Corpus, question: str) -> tuple[dict[str, float], dict[str, float]]:
    vector = await corpus.embedder.embed_text(question)
    store = corpus.agent.store
    return dict(store.nearest(Layer.SEMANTIC, vector, POOL)), dict(store.lexical(Layer.SEMANTIC, question, POOL))


def _min_max(values: Any) -> Any:
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else np.zeros_like(values)


async def ours(corpus: Corpus, question: str, top_k: int) -> list[str]:
    return [hit.node.id for hit in await corpus.agent.retrieve(question, top_k=top_k, verify=False)]


async def verified(corpus: Corpus, question: str, top_k: int) -> list[str]:
    return [hit.node.id for hit in await corpus.agent.retrieve(question, top_k=top_k)]


def without(name: str) -> Arm:
    async def arm(corpus: Corpus, question: str, top_k: int) -> list[str]:
        settings = replace(corpus.agent.config, **{f"{name}_weight": 0.0})
        retriever = Retriever(corpus.agent.store, corpus.embedder, None, settings)
        return [hit.node.id for hit in await retriever.retrieve(question, top_k=top_k)]

    return arm


ARMS: dict[str, Arm] = {
    "dense": dense,
    "bm25": bm25,
    "reference": reference,
    "sum": weighted_sum,
    "rrf": reciprocal_rank,
    "ours": ours,
    **{f"-{name}": without(name) for name in WEIGHTS},
}


@dataclass(slots=True)
class Measured:
    recalls: dict[int, list[float]] = field(default_factory=lambda: {cut: [] for cut in CUTS})
    categories: list[str] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)

    def mean(self, cut: int, category: str | None = None) -> float:
        chosen = [
            recall for recall, own in zip(self.recalls[cut], self.categories, strict=True) if category in (None, own)
        ]
        return statistics.fmean(chosen)


async def measure(corpora: Sequence[Corpus], arms: dict[str, Arm], every: int) -> dict[str, Measured]:
    """Ask each ``every``-th question of every arm, at each cut: what an arm looks at may follow from top_k."""
    measured = {name: Measured() for name in arms}
    for corpus in corpora:
        for asked in corpus.asked[::every]:
            for name, arm in arms.items():
                measured[name].categories.append(asked.category)
                for cut in CUTS:
                    begun = time.perf_counter()
                    found = await arm(corpus, asked.question, cut)
                    measured[name].milliseconds.append(1000 * (time.perf_counter() - begun))
                    share = len(asked.evidence.intersection(found[:cut])) / len(asked.evidence)
                    measured[name].recalls[cut].append(share)
    return measured


def show(title: str, measured: dict[str, Measured]) -> dict[str, Any]:
    categories = sorted(set(next(iter(measured.values())).categories))
    count = len(next(iter(measured.values())).categories)
    print(f"\n{title}: {count} questions; recall at 5 / at 10, pairs against ours at 5, median ms without embedding")
    print(
        f"{'arm':12}{'all':>15}  " + "".join(f"{category:>16}" for category in categories) + f"{'< = >':>14}{'ms':>8}"
    )
    table: dict[str, Any] = {}
    for name, each in measured.items():
        cells = [f"{each.mean(5, part):.3f} / {each.mean(10, part):.3f}" for part in (None, *categories)]
        pairs = list(zip(each.recalls[5], measured["ours"].recalls[5], strict=True))
        versus = (sum(a < b for a, b in pairs), sum(a == b for a, b in pairs), sum(a > b for a, b in pairs))
        median = statistics.median(each.milliseconds)
        print(
            f"{name:12}{cells[0]:>15}  "
            + "".join(f"{cell:>16}" for cell in cells[1:])
            + f"{'{} {} {}'.format(*versus):>14}{median:8.1f}"
        )
        table[name] = {
            "recall": {cut: each.mean(cut) for cut in CUTS},
            "by_category": {part: {cut: each.mean(cut, part) for cut in CUTS} for part in categories},
            "worse_equal_better_than_ours_at_5": versus,
            "median_ms": median,
        }
    return table


async def learning(title: str, corpus: Corpus, questions: Sequence[Question], lives: range) -> dict[str, Any]:
    """Live through tasks whose context lacks the evidence at first, then ask again in other words.

    A task succeeds once its evidence is in the context; the agent repairs by its own means. Asked anew are the reworded
    questions of those tasks, and all questions of which no task was: learning must not cost them anything.
    """
    lived = [(corpus.asked[place], questions[place]) for place in lives]
    others = [asked for place, asked in enumerate(corpus.asked) if place not in lives]

    async def recall(texts: Sequence[tuple[str, frozenset[str]]]) -> float:
        found = [len(evidence.intersection(await ours(corpus, text, 5))) / len(evidence) for text, evidence in texts]
        return statistics.fmean(found)

    again = [(question.reworded, asked.evidence) for asked, question in lived]
    untouched = [(asked.question, asked.evidence) for asked in others]
    before = await recall(again), await recall(untouched)
    solved = 0
    for asked, _ in lived:
        needed = [node.content for node in corpus.agent.store.get_many(sorted(asked.evidence))]

        async def execute(context: str, needed: Sequence[str] = needed) -> tuple[str, str, bool]:
            from xml.sax.saxutils import escape

            held = all(_plain(escape(text)) in _plain(context) for text in needed)
            return ("done", "", True) if held else ("", "the answer is not in the context", False)

        solved += (await corpus.agent.run_task(asked.question, execute)).success
    after = await recall(again), await recall(untouched)
    print(f"\nlearning, {title}: {len(lived)} tasks lived, {solved} solved; recall at 5 before and after")
    print(f"  the same needs in other words  {before[0]:.3f}  {after[0]:.3f}")
    print(f"  questions without a task       {before[1]:.3f}  {after[1]:.3f}")
    return {"tasks": len(lived), "solved": solved, "reworded": [before[0], after[0]], "others": [before[1], after[1]]}


async def speed(sizes: Sequence[int], embedder: BaseEmbedder) -> list[dict[str, Any]]:
    """Time steps of Stage I over made-up facts: random vectors, words by Zipf's law, sources of 20 chunks."""
    results = []
    for size in sizes:
        known = Remembering(embedder)
        agent = FluxMemAgent(None, known, FluxMemConfig())
        generator = np.random.default_rng(0)
        for begin in range(0, size, 2000):
            facts = _made_up(generator, 2000, 30, known)
            await agent.add_knowledge_nodes(
                [
                    SemanticNode(
                        content=content,
                        source=f"s{number // 20}",
                        chunk_index=number % 20,
                        scope=Scope(user="few" if number % 100 == 0 else "many"),
                    )
                    for number, content in enumerate(facts, begin)
                ]
            )
        questions = _made_up(generator, 60, 10, known)
        await agent.context(questions[0])
        embedding = [await _timed(embedder.embed_text(f"{question} anew")) for question in questions]
        steps = [await _timed(agent.context(question)) for question in questions]
        scoped = [await _timed(agent.context(question, scope=Scope(user="few"))) for question in questions]
        recall = statistics.fmean(_scope_recall(agent, known.vectors[question]) for question in questions)
        results.append(
            {
                "facts": size,
                "embedding_ms": statistics.median(embedding),
                "step_ms": statistics.median(steps),
                "step_in_scope_ms": statistics.median(scoped),
                "recall_in_scope": recall,
            }
        )
        line = results[-1]
        print(
            f"\n{size} facts, median ms: embedding a question {line['embedding_ms']:.1f}, a step of Stage I beside it"
        )
        print(f"  {line['step_ms']:.1f}, in a scope of 1 % of the facts {line['step_in_scope_ms']:.1f}")
        print(f"  recall of the 10 nearest in that scope {recall:.3f}")
        agent.close()
    return results


def _made_up(generator: np.random.Generator, count: int, num_words: int, known: Remembering) -> list[str]:
    """Make texts of words by Zipf's law, each with a random vector."""
    vectors = generator.normal(size=(count, known.dimension)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    drawn = np.minimum(generator.zipf(1.2, size=(count, num_words)), 30_000)
    texts = [" ".join(f"w{number}" for number in row) for row in drawn]
    known.vectors.update(zip(texts, vectors, strict=True))
    return texts


async def _timed(step: Awaitable[Any]) -> float:
    begun = time.perf_counter()
    await step
    return 1000 * (time.perf_counter() - begun)


def _scope_recall(agent: FluxMemAgent, vector: FloatArray) -> float:
    scope = Scope(user="few")
    nodes = agent.store.select(layers=(Layer.SEMANTIC,), scope=scope)
    cosines = np.stack([node.embedding for node in nodes if node.embedding is not None]) @ vector
    exact = {nodes[place].id for place in np.argsort(-cosines)[:10]}
    return len(exact.intersection(id for id, _ in agent.store.nearest(Layer.SEMANTIC, vector, 10, scope=scope))) / 10


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--locomo", type=Path, help="folder of LoCoMo's conversations, a JSON file each")
    parser.add_argument("--llm", default="none", help="language model for the arm ours+llm, by name or path")
    parser.add_argument("--every", type=int, default=1, help="ask each n-th question only")
    parser.add_argument("--parts", default="dialogue,docs,learning,speed", help="what to measure, by commas")
    parser.add_argument("--sizes", default="10000,100000", help="facts for the timing, by commas")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    parts = set(options.parts.split(","))

    config = FluxMemConfig()
    base = build_embedder(config)
    assert base is not None
    llm = build_llm(replace(config, llm_model=options.llm))
    arms = {**ARMS, **({"ours+llm": verified} if llm is not None else {})}
    embedder = Remembering(base)
    figures: dict[str, Any] = {}
    if options.locomo and "dialogue" in parts:
        corpora = [await conversation_corpus(each, embedder, llm) for each in load_conversations(options.locomo)]
        for corpus in corpora:
            corpus.prepare()
        figures["locomo"] = show("LoCoMo", await measure(corpora, arms, options.every))
    if parts & {"docs", "learning"}:
        corpus, questions = await docs_corpus(embedder, llm)
        corpus.prepare()
        if "docs" in parts:
            figures["docs"] = show("Python's docstrings", await measure([corpus], arms, options.every))
        if "learning" in parts:
            half = len(questions) // 2
            figures["learning"] = await learning("first half", corpus, questions, range(half))
            fresh, _ = await docs_corpus(embedder, llm)
            figures["learning_unseen"] = await learning("second half", fresh, questions, range(half, len(questions)))
            fresh.agent.close()
    if "speed" in parts:
        figures["speed"] = await speed([int(size) for size in options.sizes.split(",")], base)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
