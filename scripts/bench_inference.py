"""Local inference against what a bare library needs, as ratios in one run: medians of interleaved repetitions.

    .venv/bin/python scripts/bench_inference.py [--json FILE] [--repeats 5] [--cpu-time] [--only verify,embed]

verify   verify_batch of 15 texts against 15 single verdicts that the model writes as JSON, and as free text
embed    embedding against SentenceTransformer.encode of the same texts, sorted by length, at the same batch size; and
         the growth of the process over 100,000 chunks
json     valid answers of 100 under a grammar, time a token against free generation, compilations a process
load     the converted language model against a bare transformers load of the same folder
search   the first `fluxmem search` of a process against a bare import, load and encode of the same embedder

Both default models must be installed. Ratios are the figures; the milliseconds beside them are of a shared machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

os.environ.update({"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"})

from rich.console import Console
from rich.table import Table

from fluxmem_local.models import SentenceTransformerEmbedder, TransformersLLM
from fluxmem_local.models.calibration import labelled_questions
from fluxmem_local.models.loading import load_embedder, load_llm, prepare_model
from fluxmem_local.models.registry import model_path
from fluxmem_local.models.structured import ATTRIBUTION_SCHEMA, VERDICT_SCHEMA

EMBEDDER = "all-minilm-l6-v2"
LLM = "smollm2-135m-instruct"
NUM_CANDIDATES = 15
NUM_EMBEDDED = 320
NUM_CHUNKS = 100_000
CHUNKS_AT_ONCE = 500
CHUNKS_BEFORE_GROWTH = 20_000
FREE_TOKENS = 32
Row = tuple[str, float, str, bool]


def cpu_seconds() -> float:
    """CPU time of this process and of the children that it waited for."""
    return sum(os.times()[:4])


clock = time.perf_counter


def interleaved(repeats: int, *calls: Callable[[], Any]) -> list[float]:
    """Run the calls in turn, ``repeats`` times, after one round that does not count; medians in seconds."""
    times: list[list[float]] = [[] for _ in calls]
    for round_number in range(repeats + 1):
        for call, taken in zip(calls, times, strict=True):
            started = clock()
            call()
            if round_number:
                taken.append(clock() - started)
    return [statistics.median(taken) for taken in times]


def texts(count: int, seed: int, fewest: int = 6, most: int = 90) -> list[str]:
    """Make texts of words as they stand in the labelled questions, each another one."""
    words = sorted({word for question in labelled_questions() for word in question.fact.split()})
    generator = Random(seed)
    return [
        " ".join([*generator.choices(words, k=generator.randint(fewest, most)), f"{seed}/{number}"])
        for number in range(count)
    ]


def bench_verify(repeats: int) -> list[Row]:
    batch, single, free = (TransformersLLM(LLM, max_new_tokens=FREE_TOKENS) for _ in range(3))
    single._verification = "json"
    asked = [question for question in labelled_questions() if question.language == "en"]
    facts = [text for question in asked for text in question.distractors][:NUM_CANDIDATES]
    rows: list[Row] = []
    turns = [f"{one}\n{two} {one}" for one, two in zip(facts, facts[1:] + facts[:1], strict=True)]
    for kind, evidences in (("sentences", facts), ("turns with the one before", turns)):
        claims = [asked[0].question] * NUM_CANDIDATES

        def together(claims: list[str] = claims, evidences: Sequence[str] = evidences) -> None:
            asyncio.run(batch.verify_batch(claims, evidences))

        def one_by_one(claims: list[str] = claims, evidences: Sequence[str] = evidences) -> None:
            for claim, evidence in zip(claims, evidences, strict=True):
                asyncio.run(single.verify(claim, evidence))

        def free_text(claims: list[str] = claims, evidences: Sequence[str] = evidences) -> None:
            for claim, evidence in zip(claims, evidences, strict=True):
                prompt = f"Claim: {claim}\nEvidence: {evidence}\nHow well does it support the claim, from 0 to 1?"
                asyncio.run(free.generate(prompt, temperature=0))

        tokens = statistics.mean(batch.count_tokens(text) for text in evidences)
        ours, written, said = interleaved(repeats, together, one_by_one, free_text)
        what = f"verify_batch of 15 {kind} ({tokens:.0f} tokens), {1000 * ours:.0f} ms: times faster than 15 "
        rows.append((f"{what}JSON verdicts", written / ours, ">= 10", written / ours >= 10))
        rows.append((f"{what}free verdicts", said / ours, ">= 10", said / ours >= 10))
    return rows


def bench_embed(repeats: int) -> list[Row]:
    embedder = SentenceTransformerEmbedder(EMBEDDER)
    bare = load_embedder(EMBEDDER).model
    seed = 0

    def ours() -> None:
        nonlocal seed
        seed += 1
        asyncio.run(embedder.embed_batch(texts(NUM_EMBEDDED, seed)))

    def theirs() -> None:
        bare.encode(sorted(texts(NUM_EMBEDDED, seed), key=len, reverse=True), batch_size=32)

    own, bare_time = interleaved(repeats, ours, theirs)
    rows: list[Row] = [
        (
            f"embedding, {NUM_EMBEDDED / own:.0f} texts a second: throughput against encode",
            bare_time / own,
            ">= 0.95",
            bare_time / own >= 0.95,
        )
    ]

    # What could grow is the same for each model; with the tiny one it takes a minute in place of ten.
    tiny = SentenceTransformerEmbedder("tiny-embedder")

    async def grow() -> tuple[float, float]:
        start = 0.0
        for done in range(0, NUM_CHUNKS, CHUNKS_AT_ONCE):
            if done == CHUNKS_BEFORE_GROWTH:
                start = resident_mib()
            await tiny.embed_batch(texts(CHUNKS_AT_ONCE, -1 - done, 6, 12))
        return start, resident_mib()

    start, end = asyncio.run(grow())
    what = f"memory after {NUM_CHUNKS:,} chunks ({end:.0f} MiB) against after {CHUNKS_BEFORE_GROWTH:,}"
    rows.append((what, end / start, "<= 1.05", end / start <= 1.05))
    return rows


def resident_mib() -> float:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20
    except OSError:
        # Elsewhere than on Linux only the most that it ever was is told.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def bench_json(repeats: int) -> list[Row]:
    rows: list[Row] = []
    for name in (LLM, "tiny-llm"):
        llm = TransformersLLM(name)

        async def ask(llm: TransformersLLM = llm) -> list[Any]:
            verdicts = [f"How true is it that {number} is even?" for number in range(50)]
            causes = [f"The step failed: error {number}. Name the cause." for number in range(50)]
            return await asyncio.gather(
                *(llm.generate_json(prompt, VERDICT_SCHEMA, 16) for prompt in verdicts),
                *(llm.generate_json(prompt, ATTRIBUTION_SCHEMA, 192) for prompt in causes),
                return_exceptions=True,
            )

        valid = sum(isinstance(answer, dict) for answer in asyncio.run(ask()))
        rows.append((f"valid JSON of 100 answers, {name}", valid, "100", valid == 100))
        compiled = len(load_llm(name).grammars)
        rows.append((f"grammars compiled for these 100 answers of 2 schemas, {name}", compiled, "2", compiled == 2))

    constrained, free = per_token(repeats)
    what = f"time a token under a grammar ({1000 * constrained:.0f} ms) against free generation"
    rows.append((what, constrained / free, "< 1.15", constrained / free < 1.15))
    return rows


def per_token(repeats: int) -> tuple[float, float]:
    """Seconds a token of the same model and prompt, with and without a grammar that allows as many tokens."""
    import torch

    from fluxmem_local.models.structured import grammar, schema_key

    loaded = load_llm(LLM)
    ids = loaded.tokenizer("The step failed because the file was not there. Name the cause.", return_tensors="pt")
    schema = schema_key(
        {
            "type": "object",
            "properties": {"details": {"type": "string", "minLength": 400, "maxLength": 500}},
            "required": ["details"],
            "additionalProperties": False,
        }
    )

    def generate(masks: list[Any]) -> None:
        with torch.inference_mode():
            loaded.model.generate(
                **ids,
                max_new_tokens=FREE_TOKENS,
                min_new_tokens=FREE_TOKENS,
                do_sample=False,
                logits_processor=masks,
                pad_token_id=loaded.tokenizer.pad_token_id,
            )

    ours, bare = interleaved(repeats, lambda: generate([grammar(loaded, schema, 1)]), lambda: generate([]))
    return ours / FREE_TOKENS, bare / FREE_TOKENS


LOAD_OURS = """
import sys, time
import transformers, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from fluxmem_local.models.loading import load_llm
clock = time.process_time if sys.argv[2] == "cpu" else time.perf_counter
started = clock()
load_llm(sys.argv[1])
print(clock() - started)
"""
LOAD_BARE = """
import sys, time
import transformers, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
clock = time.process_time if sys.argv[2] == "cpu" else time.perf_counter
started = clock()
AutoTokenizer.from_pretrained(sys.argv[1])
AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
print(clock() - started)
"""
ENCODE_BARE = """
import sys
from sentence_transformers import SentenceTransformer
SentenceTransformer(sys.argv[1], device="cpu").encode([sys.argv[2]])
"""


def python(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def bench_load(repeats: int) -> list[Row]:
    folder = str(prepare_model(LLM).directory)
    ours, bare = [], []
    for _ in range(repeats):
        ours.append(float(python(LOAD_OURS, LLM, "cpu" if clock is cpu_seconds else "wall")))
        bare.append(float(python(LOAD_BARE, folder, "cpu" if clock is cpu_seconds else "wall")))
    own, theirs = statistics.median(ours), statistics.median(bare)
    what = f"loading the language model, {own:.1f} s, against a bare transformers load"
    return [(what, own / theirs, "<= 1.15", own / theirs <= 1.15)]


def bench_search(repeats: int) -> list[Row]:
    query = "when is the staging database wiped"
    with tempfile.TemporaryDirectory() as directory:
        environment = {**os.environ, "FLUXMEM_HOME": f"{directory}/memory"}

        def fluxmem(*arguments: str, given: str | None = None) -> None:
            subprocess.run(
                [sys.executable, "-m", "fluxmem_local", *arguments],
                env=environment,
                input=given,
                capture_output=True,
                text=True,
                check=True,
            )

        fluxmem("init")
        facts = [text for question in labelled_questions() for text in (question.fact, *question.distractors)]
        fluxmem("add", "-", given="\n\n".join(facts))
        ours, bare = interleaved(
            repeats, lambda: fluxmem("search", query), lambda: python(ENCODE_BARE, str(model_path(EMBEDDER)), query)
        )
    what = f"first search of the command line, {ours:.1f} s, against bare import, load and encode"
    return [(what, ours / bare, "< 1.5", ours / bare < 1.5)]


BENCHES: dict[str, Callable[[int], list[Row]]] = {
    "verify": bench_verify,
    "embed": bench_embed,
    "json": bench_json,
    "load": bench_load,
    "search": bench_search,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(BENCHES), help="some of: %(default)s")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--cpu-time", action="store_true", help="CPU seconds in place of wall time, on a busy machine")
    arguments = parser.parse_args()
    if arguments.cpu_time:
        global clock
        clock = cpu_seconds
    rows = [row for name in arguments.only.split(",") for row in BENCHES[name](arguments.repeats)]
    table = Table(title="Local inference, as ratios")
    table.add_column("what")
    for name in ("measured", "allowed", ""):
        table.add_column(name, justify="right")
    for what, value, allowed, met in rows:
        table.add_row(what, f"{value:.2f}", allowed, "ok" if met else "MISSED")
    Console(width=140).print(table)
    if arguments.json:
        told = [{"what": what, "measured": value, "allowed": allowed, "met": met} for what, value, allowed, met in rows]
        arguments.json.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    return 0 if all(met for *_, met in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
