"""Rewriting without a language model: spell a text out, lift it to a rule, and check a text against its source."""

from __future__ import annotations

import re

from fluxmem_local.text import tokenize

from .feedback import replace_specifics, specifics

__all__ = ["generalise", "is_grounded", "names_in", "spell_out"]

_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+|\n+")
# From the first space only: a long run of them would be tried from each.
_CLAUSE_END = re.compile(r"(?:(?<!\s)\s+)?[;,；，、]\s*(?:and\s+|then\s+)*|(?<!\s)\s+(?:and\s+)?then\s+")
_REQUIRES = re.compile(
    r"\b(?:must|should|has to|have to|need|needs|expect|expected|ask|asks|asked|instead|want|wanted"
    r"|required|rather|not)\b",
    re.IGNORECASE,
)
# "does not derive the average" asks to derive it; "a total, not an average as asked" asks for an average.
_LEFT_UNDONE = re.compile(r"\b(?:do(?:es)?|did)(?:\s+not|n't)\s+(?:\w+ly\s+)?([a-z][^.;:!?\n]{3,160})", re.IGNORECASE)
_CONTRAST = re.compile(
    r"\b(?:not|instead of|rather than)\s+((?:an?|the)\s[^,.;:!?\n]{3,120}?),?\s+(?:as|which|that|like)\s+"
    r"(?:\w+\s+){0,3}(?:ask|want|expect|requir|request)\w*",
    re.IGNORECASE,
)
_NOISE_LINE = re.compile(r'^\s*(?:File "|at |Traceback|\^+|~+|\d+ \|)')
_MONTH_DATE = re.compile(
    r"\b(?:\d{1,2}\s+)?(?:January|February|March|April|May|June|July|August|September|October|November|December)"
    r"(?:\s+\d{1,2}\b(?:,?\s+\d{4})?)?"
)
_NAME = re.compile(r"(?<=[a-z,;]\s)(?:[A-Z]\w+)(?:\s[A-Z]\w+)*")
# A word within a sentence; the first one is written large whatever it is.
_INNER_WORD = re.compile(r"(?<=[\w,;] )[^\W\d_]\w+")
_ASIDE = re.compile(r"(?<!\s)\s*\([^()]{1,80}\)")
_MAX_STEPS = 12
_MAX_REQUIREMENTS = 3
_SENTENCE_CHARS = 240
# Share of the original's words that a spelled-out version must keep, and of a rule's words that must be known.
_KEPT_SHARE = 0.6


def spell_out(content: str, task: str, feedback: str) -> str:
    """Unfold a text: its clauses as steps of their own, then what the feedback found missing.

    Where the feedback does not say what is wanted, the task does.
    """
    lines = [content.strip()]
    _, _, rest = content.partition(":")
    clauses = [part.strip(" .") for part in _CLAUSE_END.split(rest or content) if len(part.split()) > 1]
    if len(clauses) > 2:
        lines += ["Step by step:", *(f"{place}. {part}" for place, part in enumerate(clauses[:_MAX_STEPS], 1))]
    wanted = list(dict.fromkeys(" ".join(found.split()) for found in _LEFT_UNDONE.findall(feedback)))
    wanted += [f"give {' '.join(found.split())}" for found in dict.fromkeys(_CONTRAST.findall(feedback))]
    if wanted:
        lines.append(f"Above all, {' and '.join(wanted[:_MAX_REQUIREMENTS])}.")
    else:
        lines.append(f"Do exactly what the task asks: {' '.join(task.split())[:_SENTENCE_CHARS]}")
    lines += [f"Mind: {sentence}" for sentence in _requirements(feedback)]
    return "\n".join(lines)


def _requirements(feedback: str) -> list[str]:
    """The feedback's sentences that state what is wanted; without one, its first sentences."""
    sentences = [
        " ".join(part.split())[:_SENTENCE_CHARS]
        for part in _SENTENCE_END.split(feedback)
        if len(part.split()) > 2 and not _NOISE_LINE.match(part)
    ]
    wanted = [sentence for sentence in sentences if _REQUIRES.search(sentence)]
    return list(dict.fromkeys(wanted or sentences))[:_MAX_REQUIREMENTS]


def generalise(content: str, task: str) -> str:
    """Lift a text from its instance: names, numbers, dates and asides that the task does not share become blanks."""
    shared = specifics(task)
    told = task.casefold()

    def blank(found: re.Match[str]) -> str:
        mark = found[0].strip(".,:;-")
        if not mark or mark.casefold() in shared:
            return found[0]
        name = "path" if "/" in mark else "number" if mark[0].isdigit() else "name"
        return found[0].replace(mark, f"[{name}]")

    text = _MONTH_DATE.sub(lambda found: found[0] if found[0].casefold() in told else "[date]", content.strip())
    text = _ASIDE.sub(lambda found: found[0] if found[0].strip(" ()").casefold() in told else "", text)
    text = _NAME.sub(lambda found: found[0] if found[0].casefold() in told else "[name]", text)
    text = re.sub(r"(?:\[number\][\s,+=x-]*){2,}", "[number] ", replace_specifics(text, blank)).strip()
    return f"As a rule, with the values of the case at hand: {text}"


def names_in(text: str) -> set[str]:
    """Return the words that are written with a capital within a sentence, case-folded."""
    return {word.casefold() for word in _INNER_WORD.findall(text) if word[0].isupper()}


def is_grounded(text: str, original: str, granularity: str, failure: str) -> bool:
    """Tell whether a model's rewriting says what its source says and invents no number or name.

    A fine version keeps the original's words and adds some of the failure's; a coarse one is made of known words and
    sheds instance marks.
    """
    marks, known_marks = specifics(text), specifics(original) | specifics(failure)
    if marks - known_marks:
        return False
    words, before, asked = set(tokenize(text)), set(tokenize(original)), set(tokenize(failure))
    if not words or not before or any(not before | asked >= set(tokenize(name)) for name in names_in(text)):
        return False
    if granularity == "fine":
        return len(words & before) >= _KEPT_SHARE * len(before) and bool((words - before) & asked)
    tied = specifics(original) - specifics(failure)
    return len(words & (before | asked)) >= _KEPT_SHARE * len(words) and (not tied or len(marks & tied) < len(tied))
