"""Measure `ask`: what it answers, what it leaves unanswered, and what it calls supported although it is wrong.

Eight small memories, each with questions that it answers and questions that it does not. The checks of `ask` were
tuned on the memories marked "seen" alone; those marked "unseen" say what to expect elsewhere. An answer is right when
it holds one of the expected texts and no text that stands for another answer, or is a sentence of a fact word for word.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fluxmem_local import FluxMemAgent
from fluxmem_local.agent.answering import Answer
from fluxmem_local.agent.builder import build_embedder, build_llm
from fluxmem_local.config import FluxMemConfig

OUTCOMES = ("right", "wrong", "refused", "honest", "harm")


@dataclass(frozen=True, slots=True)
class Question:
    """``expected``: texts of which a right answer holds one, none when the memory does not say; ``others``: rivals."""

    text: str
    expected: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Memory:
    name: str
    seen: bool
    facts: tuple[str, ...]
    questions: tuple[Question, ...]


MEMORIES = (
    Memory(
        "operations",
        True,
        (
            "Mara approves all deployments; Jonas reviews them.",
            "The staging database is reset every Monday at 06:00 UTC.",
            "Backups are kept for 30 days and then deleted.",
            "The VPN needs a hardware token.",
            "Rollbacks are started with the script revert.sh.",
            "Oleg is on call in the first week of a month, Priya in the second.",
        ),
        (
            Question("Who approves deployments?", ("Mara",), ("Jonas",)),
            Question("Who reviews deployments?", ("Jonas",), ("Mara",)),
            Question("On which day is the staging database wiped?", ("Monday",)),
            Question("How long are backups kept?", ("30 days",)),
            Question("Which script starts a rollback?", ("revert.sh",)),
            Question("Who is on call in the second week?", ("Priya",), ("Oleg",)),
            Question("What is the VPN gateway called?"),
            Question("Who approves holidays?"),
            Question("What is the password of the staging database?"),
        ),
    ),
    Memory(
        "people",
        True,
        (
            "Ana plays the cello in a quartet.",
            "Ben lives in Porto and teaches chemistry.",
            "Ana's sister Rita moved to Oslo in 2019.",
            "Ben is allergic to peanuts.",
            "Carla manages Ben.",
            "Ben manages Dora.",
        ),
        (
            Question("Where does Ben live?", ("Porto",)),
            Question("What does Ana play?", ("cello",)),
            Question("Who manages Ben?", ("Carla",), ("Dora",)),
            Question("Who manages Dora?", ("Ben",), ("Carla",)),
            Question("When did Rita move?", ("2019",)),
            Question("To which city did Ana's sister move?", ("Oslo",)),
            Question("What subject does Ben teach?", ("chemistry",)),
            Question("Where does Ana live?"),
            Question("Who manages Carla?"),
            Question("What is Ana allergic to?"),
        ),
    ),
    Memory(
        "Wohnung",
        True,
        (
            "Der Mietvertrag der Wohnung endet am 31. Mai 2031.",
            "Die Miete beträgt 900 Euro im Monat.",
            "Lena kümmert sich um die Heizung, Tom um den Garten.",
            "Der Ersatzschlüssel liegt bei Frau Yilmaz im zweiten Stock.",
        ),
        (
            Question("Wann endet der Mietvertrag?", ("2031",)),
            Question("Wie hoch ist die Miete?", ("900",)),
            Question("Wer kümmert sich um den Garten?", ("Tom",), ("Lena",)),
            Question("Wo ist der Ersatzschlüssel?", ("Yilmaz",)),
            Question("Wie heißt der Vermieter?"),
            Question("Wie viel kostet der Strom im Monat?"),
        ),
    ),
    Memory(
        "办公室",
        True,
        ("会议室在三楼，靠近电梯。", "李雷负责采购，韩梅梅负责财务。", "打印机的密码是4821。", "食堂每天十二点开门。"),
        (
            Question("会议室在几楼？", ("三楼",)),
            Question("谁负责财务？", ("韩梅梅",), ("李雷",)),
            Question("打印机的密码是多少？", ("4821",)),
            Question("食堂几点关门？"),
            Question("李雷住在哪里？"),
        ),
    ),
    Memory(
        "laboratory",
        False,
        (
            "The centrifuge runs at 12000 rpm for 15 minutes.",
            "Samples are stored at minus 80 degrees in freezer B.",
            "Freezer A holds reagents and stays at minus 20 degrees.",
            "The autoclave was serviced on 4 March 2026 by Delta Medical.",
            "Dr. Iqbal signs orders above 500 euros; smaller ones are signed by the lab manager.",
            "The lab manager is Sofie Brandt.",
        ),
        (
            Question("How fast does the centrifuge spin?", ("12000",)),
            Question("At what temperature are samples kept?", ("80",), ("20",)),
            Question("How cold is freezer A?", ("20",), ("80",)),
            Question("Who serviced the autoclave?", ("Delta Medical",)),
            Question("Who signs orders above 500 euros?", ("Iqbal",), ("Sofie",)),
            Question("Who is the lab manager?", ("Sofie", "Brandt"), ("Iqbal",)),
            Question("When will the autoclave be replaced?"),
            Question("What is the phone number of the lab manager?"),
            Question("How many samples are in freezer B?"),
        ),
    ),
    Memory(
        "family chat",
        False,
        (
            "Nina: I finally sold the blue bike, Karim paid 120 euros for it.",
            "Karim: My flight to Lisbon leaves on Thursday at 7:45.",
            "Nina: Mum's birthday is on 9 October, I will bake a carrot cake.",
            "Karim: I borrowed a tent from Felix for the summer.",
            "Nina: Felix borrowed my drill and never gave it back.",
        ),
        (
            Question("Who bought the blue bike?", ("Karim",)),
            Question("How much did Karim pay for the bike?", ("120",)),
            Question("When does the flight to Lisbon leave?", ("Thursday", "7:45")),
            Question("What cake will Nina bake?", ("carrot",)),
            Question("From whom did Karim borrow a tent?", ("Felix",), ("Nina",)),
            Question("What did Felix borrow?", ("drill",), ("tent",)),
            Question("What did Karim give Nina for her birthday?"),
            Question("When is Karim's birthday?"),
            Question("Where does Felix live?"),
        ),
    ),
    Memory(
        "Firma",
        False,
        (
            "Herr Vogt leitet den Einkauf, Frau Adler leitet den Vertrieb.",
            "Die Reisekosten werden bis zum 10. des Folgemonats eingereicht.",
            "Der Firmenwagen steht in der Tiefgarage auf Platz 17.",
            "Urlaub über zwei Wochen muss die Geschäftsführung genehmigen.",
        ),
        (
            Question("Wer leitet den Vertrieb?", ("Adler",), ("Vogt",)),
            Question("Wo steht der Firmenwagen?", ("Tiefgarage", "17")),
            Question("Bis wann muss ich die Reisekosten einreichen?", ("10.",)),
            Question("Wer muss längeren Urlaub genehmigen?", ("Geschäftsführung",)),
            Question("Wer leitet die Buchhaltung?"),
            Question("Welche Farbe hat der Firmenwagen?"),
        ),
    ),
    Memory(
        "音乐学校",
        False,
        (
            "王芳每周三教钢琴，陈明每周五教吉他。",
            "音乐教室的租金是每月两千元。",
            "学校的大门晚上九点关闭。",
            "新生报名截止到八月二十日。",
        ),
        (
            Question("谁教吉他？", ("陈明",), ("王芳",)),
            Question("音乐教室的租金是多少？", ("两千",)),
            Question("大门几点关闭？", ("九点",)),
            Question("新生报名什么时候截止？", ("八月二十日",)),
            Question("王芳住在哪里？"),
            Question("校长叫什么名字？"),
        ),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    memory: Memory
    question: Question
    answer: Answer
    outcome: str
    seconds: float


def judge(memory: Memory, question: Question, answer: Answer) -> str:
    if not answer.supported:
        return "refused" if question.expected else "honest"
    if not question.expected:
        return "harm"
    quoted = any(answer.text in fact for fact in memory.facts) and len(answer.text) > len(question.text) // 2
    names_other = any(other.casefold() in answer.text.casefold() for other in question.others)
    holds = any(text.casefold() in answer.text.casefold() for text in question.expected)
    return "right" if holds and (quoted or not names_other) else "wrong"


async def play(memories: Sequence[Memory], config: FluxMemConfig) -> list[Asked]:
    embedder, llm = build_embedder(config), build_llm(config)
    asked = []
    for memory in memories:
        for question in memory.questions:
            # A memory of its own: what an answer taught must not help with the next question.
            async with FluxMemAgent(llm, embedder, config) as agent:
                for fact in memory.facts:
                    await agent.add_knowledge(fact)
                started = time.perf_counter()
                answer = await agent.ask(question.text)
                seconds = time.perf_counter() - started
            outcome = judge(memory, question, answer)
            asked.append(Asked(memory=memory, question=question, answer=answer, outcome=outcome, seconds=seconds))
            print(f"{outcome:8}{seconds:6.1f} s  {question.text} -> {answer.text!r}", file=sys.stderr, flush=True)
    return asked


def figures(asked: Sequence[Asked]) -> dict[str, float]:
    counts = Counter(each.outcome for each in asked)
    return {
        "questions": len(asked),
        **{outcome: counts[outcome] for outcome in OUTCOMES},
        "seconds": round(sum(each.seconds for each in asked) / max(1, len(asked)), 2),
    }


def show(parts: dict[str, dict[str, float]]) -> None:
    print(f"{'':8}{'answerable':>30}{'unanswerable':>24}")
    print(f"{'':8}{'right':>8}{'wrong':>8}{'no answer':>14}{'no answer':>12}{'wrong':>12}{'s each':>10}")
    for name, row in parts.items():
        print(
            f"{name:8}{row['right']:>8}{row['wrong']:>8}{row['refused']:>14}{row['honest']:>12}{row['harm']:>12}"
            f"{row['seconds']:>10}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("seen", "unseen", "all"), default="all", help="which memories")
    parser.add_argument("--llm", default="smollm2-135m-instruct", help="a language model's name")
    parser.add_argument("--json", type=Path, help="write each answer to this file")
    arguments = parser.parse_args()
    wanted = [memory for memory in MEMORIES if arguments.part in ("all", "seen" if memory.seen else "unseen")]
    asked = asyncio.run(play(wanted, FluxMemConfig(llm_model=arguments.llm)))
    parts = {
        name: figures(those)
        for name, seen in (("seen", True), ("unseen", False))
        if (those := [each for each in asked if each.memory.seen is seen])
    }
    show(parts)
    if arguments.json is not None:
        answers = [{"question": each.question.text, "outcome": each.outcome, **each.answer.to_dict()} for each in asked]
        arguments.json.write_text(
            json.dumps({"figures": parts, "answers": answers}, indent=1, ensure_ascii=False, default=str),
            encoding="utf-8",
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
