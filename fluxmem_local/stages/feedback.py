"""Feedback: what a failed step said, cut to what matters and read for plain signs."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterable
from difflib import SequenceMatcher
from functools import lru_cache

__all__ = [
    "describe_exception",
    "lack_sign",
    "mentions",
    "missing_command",
    "outside_sign",
    "refusal_sign",
    "replace_specifics",
    "same_feedback",
    "specifics",
    "storable",
    "trim_feedback",
    "wording_sign",
]

_LINES_THAT_MATTER = re.compile(
    r"error|exception|fail|fatal|refus|denied|expected|assert|cannot|could not|missing|not found|invalid|wrong"
    r"|timed? ?out",
    re.IGNORECASE,
)
_CUT = "[…]"
# What the patterns read of a text.
_READABLE_CHARS = 20_000
_LONGEST_WORD = 300

# The world outside of the memory: networks, services, machines, rights, stock. One alternative a kind of failure.
_OUTSIDE = re.compile(
    r"""connection\s(?:was\s)?(?:refused|reset|aborted|timed\sout|error)
    | (?:request|gateway|connection|read|socket|operation)\s?time[d-]?\s?-?out
    | \b(?:429|500|502|503|504)\b:?\s(?:too\smany|internal|bad\sgateway|service|gateway|error)
    | \b(?:HTTP(?:/[\d.]+)?|status(?:\scode)?)[\s:]\s?(?:429|500|502|503|504)\b
    | service\s(?:is\s)?(?:temporarily\s)?unavailable | temporarily\sunavailable | try\sagain\slater
    | no\ssuch\shost | name\sor\sservice\snot\sknown | name\sresolution | network\s(?:is\s)?(?:unreachable|down)
    | no\sroute\sto\shost | permission\sdenied | rate\slimit | too\smany\srequests | quota\s(?:is\s)?(?:exceeded|used)
    | no\sspace\sleft | disk\s(?:is\s)?full | input/output\serror | i/o\serror | out\sof\smemory | overcurrent
    | \bMemoryError\b | cannot\sallocate\smemory | \boom[-\s]?kill\w* | killed\sby\ssignal\s(?:9|15)\b
    | \b(?:exit\s(?:status|code):?|Error)\s(?:126|127|137|143)\b | command\snot\sfound | executable\sfile\snot\sfound
    | not\srecognized\sas\san\sinternal\sor\sexternal\scommand | TimeoutExpired | deadline\sexceeded
    | (?:stopped|killed|terminated|aborted)\safter\s\d+(?:\.\d+)?\s?(?:s|sec|seconds|min|minutes)\b
    | operation\snot\spermitted | access\sis\sdenied | certificate\sverify\sfailed
    | hardware\s(?:fault|failure|error) | drive\s(?:is\s)?disabled | emergency\sstop | power\s(?:cut|outage|failure)
    | sold\sout | out\sof\sstock | (?:was|were|been|all|are|is)\s(?:\w+\s){0,4}cancelled | \bstrike\b
    | (?:is|are)\s(?:currently\s)?(?:down|offline)\b | \boutage\b | under\smaintenance | (?:is\s)?starting\sup
    | inoperative | no\smodule\snamed\s'?_ | cannot\sreach | could\snot\sresolve""",
    re.IGNORECASE | re.VERBOSE,
)
# Shells' and runners' words for a program that is not there; the name stands before or behind.
_MISSING_COMMAND = re.compile(
    r"([^\s:'\"]+): (?:command )?not found\b|'([^']+)' is not recognized as an internal"
    r"|exec: \"([^\"]+)\": executable file",
    re.IGNORECASE,
)
# The step did as told, and a tool or rule would not have it.
_REFUSAL = re.compile(
    r"(?:can(?:not|'t)|could not|unable to|refus\w+ to|fail(?:s|ed)? to) \w+|too (?:large|big|long|many)\b"
    r"|(?:over|above|beyond|exceeds?) the \w*\s?limit|limit (?:of|is) \d|not (?:supported|allowed|permitted)"
    r"|\w*(?:Limit|Unsupported|NotAllowed)\w*Error|(?:no longer|not) (?:valid|registered|available)|\bexpired\b",
    re.IGNORECASE,
)
# The step lacked something that a memory could tell.
_LACK = re.compile(
    r"\bno \w+(?: \w+){0,5} (?:is|are|was|were) known|says? nothing (?:about|of|on)|nothing (?:is )?known"
    r"|(?:do(?:es)? not|don't|doesn't|didn't|did not) (?:know|say|mention|tell)|not (?:mentioned|stated|given)"
    r"|no (?:information|knowledge|memory|instructions?) (?:on|about|of|for)|unknown (?:how|which|where|what)",
    re.IGNORECASE,
)
_WORDING = {
    "fine": re.compile(
        r"too (?:coarse|general|generic|vague|abstract|broad|short|high.level)|not (?:specific|detailed|concrete)"
        r"|(?:more|lacks?|without|missing|needs?) (?:\w+ )?(?:detail|steps?|specifics)|unclear (?:how|which)"
        r"|which one\b|spell (?:it )?out|does not (?:say|explain|derive)",
        re.IGNORECASE,
    ),
    "coarse": re.compile(
        r"too (?:specific|narrow|detailed|concrete|literal)|only (?:fits|applies|holds|works) (?:for|to|on|in)\b"
        r"|hard.?coded|over.?fit|tied to|someone else'?s|for good\b|in general\b"
        r"|another (?:host|customer|case|instance)|not generali[sz]",
        re.IGNORECASE,
    ),
}
# What names one instance: a path, a number or date, a code, an identifier.
_SPECIFIC = re.compile(
    r"""[\w.~-]*/[\w.*?/~-]+            # a path
    | \b\d[\d.,:/%-]*\w*                # a number, date, time, or code that begins with a digit
    | \b\w*[a-z]\w*_\w+ | \b\w+\.\w{1,4}\b(?=\W|$)   # snake_case, file.ext
    | \b[A-Z]{2,}\w*\d\w*\b | \b\w+-\d\w*\b | \b[a-z]+[A-Z]\w*\b""",
    re.VERBOSE,
)


# All that reads a round asks for the same few texts, and one may have megabytes.
@lru_cache(maxsize=16)
def trim_feedback(feedback: str, max_chars: int) -> str:
    """Cut feedback to ``max_chars``: its head, its tail, and the lines between them that name an error."""
    if len(feedback) <= max_chars:
        return feedback
    head, tail = feedback[: max_chars // 4], feedback[-(max_chars // 3) :]
    budget = max_chars - len(head) - len(tail) - 2 * (len(_CUT) + 2)
    kept: list[str] = []
    for line in dict.fromkeys(_matching_lines(feedback[len(head) : len(feedback) - len(tail)])):
        if len(line) + 1 > budget:
            break
        kept.append(line)
        budget -= len(line) + 1
    return "\n".join((head, _CUT, *kept, _CUT, tail)) if kept else f"{head}\n{_CUT}\n{tail}"


def _matching_lines(text: str) -> Iterable[str]:
    # The last lines of a traceback say most, so they are taken first.
    return (line.strip()[:400] for line in reversed(text.splitlines()) if _LINES_THAT_MATTER.search(line))


def describe_exception(error: BaseException) -> str:
    """Write an exception as feedback: its type, its message, and the traceback's last lines."""
    frames = "".join(traceback.format_exception(type(error), error, error.__traceback__)[-6:])
    return f"{type(error).__name__}: {error}\n{trim_feedback(frames, 2000)}".strip()


def storable(text: str) -> str:
    """Write half surrogate pairs out: tools' output often has them, and what was done must not be lost for one."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def same_feedback(one: str, other: str) -> bool:
    """Tell whether two rounds failed in the same way, whatever their numbers (times, addresses, counts)."""
    first, second = (re.sub(r"\d+", "#", " ".join(text.split()))[:4000] for text in (one, other))
    if first == second:
        return True
    return SequenceMatcher(None, first.split(), second.split(), autojunk=False).ratio() > 0.9


def outside_sign(text: str) -> str | None:
    """Return the words that tell of a failure outside of the memory, or None."""
    return _first(_OUTSIDE, text)


def missing_command(text: str) -> str | None:
    """Return the name of the program that was not found, or None."""
    found = _MISSING_COMMAND.search(_readable(text))
    return next(filter(None, found.groups())) if found else None


def mentions(text: str, name: str) -> bool:
    """Tell whether a text holds a name as a word of its own."""
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE) is not None


def refusal_sign(text: str) -> str | None:
    """Return the words that tell that a tool or a rule refused what the step did, or None."""
    return _first(_REFUSAL, text)


def lack_sign(text: str) -> str | None:
    """Return the words that tell that the step did not know enough, or None."""
    return _first(_LACK, text)


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.search(_readable(text))
    return " ".join(found[0].split()) if found else None


def wording_sign(text: str, granularity: str) -> str | None:
    """Return the words that ask for a ``fine`` or a ``coarse`` version of what was known, or None."""
    return _first(_WORDING[granularity], text)


def specifics(text: str) -> frozenset[str]:
    """Return what names one instance: numbers, codes, paths, identifiers (casefolded)."""
    found = _SPECIFIC.findall(_readable(text))
    return frozenset(mark.strip(".,:;-").casefold() for mark in found if mark.strip(".,:;-"))


def replace_specifics(text: str, replace: Callable[[re.Match[str]], str]) -> str:
    """Replace what names one instance; in a very long word, such as encoded data, nothing is looked for."""

    def in_word(word: re.Match[str]) -> str:
        return word[0] if len(word[0]) > _LONGEST_WORD else _SPECIFIC.sub(replace, word[0])

    return re.sub(r"\S+", in_word, text)


def _readable(text: str) -> str:
    """Bound a text for the patterns above: on one very long word, such as encoded data, they take quadratic time."""
    words = trim_feedback(text, _READABLE_CHARS).split()
    return " ".join(word for word in words if len(word) <= _LONGEST_WORD)
