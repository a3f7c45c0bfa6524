"""Wording: the words of a question and of a fact, and which of them say what it is about."""

from __future__ import annotations

from dataclasses import dataclass

import regex

from fluxmem_local.text import tokenize_query

__all__ = ["COPULAS", "MEASURE_ASKING", "SUBJECT_ASKING", "Word", "words_of"]

# Scripts written without spaces: a character is the unit there.
_SIGNS = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_WORD = regex.compile(
    rf"(?V1)(?P<sign>[{_SIGNS}]\p{{M}}*)|(?P<word>[[\p{{L}}\p{{M}}\p{{N}}]--[{_SIGNS}]]+"
    rf"(?:['’.,:/@_+\-][[\p{{L}}\p{{M}}\p{{N}}]--[{_SIGNS}]]+)*)"
)
_POSSESSIVE = regex.compile(r"['’]s$", regex.IGNORECASE)

# What asks, helps to ask, or joins; it says nothing of what a question is about. One text a language: the Dutch for
# "of" is a van in English.
_EMPTY = (
    """
    a an the and or of to in on at by for from with as into about than then there here this that these those it its
    is are was were be been being am do does did has have had will would shall should can could may might must
    i me my we us our you your he him his she her they them their who whom whose what which when where why how
    please tell say know
    """,
    """
    der die das den dem des ein eine einen einem einer eines und oder von vom zu zum zur in im an am auf aus bei mit
    nach für um als es ist sind war waren wird werden wurde wurden hat haben hatte habe kann können muss müssen soll
    sich ich mir mich mein wir uns unser du dein er ihn ihm sie ihr sein seine wer wen wem wessen was wann wo wohin
    woher warum wieso weshalb wie welche welcher welches welchen welchem bis da
    """,
    """
    le la les l un une des du de d et ou à au aux en dans sur pour par avec est sont était a ont il elle ils elles on
    nous vous je tu qui que qu quoi quel quelle quels quelles quand où pourquoi comment ce cette se
    """,
    """
    el la los las un uno una unos unas y o a de en que del al con por para es son era está están ha han su sus se quién
    quiénes qué cuál cuáles cuándo dónde cómo
    """,
    """
    il lo la le un una gli i e di da con su per è sono ha hanno chi cosa che quale quali quando dove perché come si
    """,
    """
    o a e de em por para no que os as um uma do da dos das no na nos nas com é são foi tem quem qual quais onde
    """,
    """
    de en in is was zijn het een van te op voor door met heeft wat welke wanneer waar waarom hoe
    """,
)
_EMPTY_WORDS = tuple(frozenset(words.split()) for words in _EMPTY)
_EMPTY_SIGNS = frozenset(
    "谁誰什么麼哪几幾多少吗嗎呢吧怎何时時候的得地是在了着過过里裡我你您他她它们們这這那有和与與请請问問为為叫"
)
_HIRAGANA = regex.compile(r"\p{Hiragana}")
# Empty words that are written large within a sentence out of politeness, or always.
_LARGE = "sie ihr ihre ihrem ihren ihrer ihres ihnen i"
_LARGE_EMPTY = frozenset(_LARGE.split())
_SUBJECT_ASKING = "who wer qui quién quiénes chi quem wie vem hvem kto kdo кто 谁 誰"
SUBJECT_ASKING = frozenset(_SUBJECT_ASKING.split())
MEASURE_ASKING = frozenset({"how", "wie", "hoe", "hur", "hvor"})
_COPULAS = "is are was were be ist sind war waren est sont était es son era è sono é são foi zijn är er jest je 是"
COPULAS = frozenset(_COPULAS.split())


@dataclass(frozen=True, slots=True)
class Word:
    """A word, or a character of a script without spaces, with its place in the text and the tokens that stand for it.

    ``is_told`` says that only a fact can have told it: it has a digit, or a capital within a sentence.
    """

    text: str
    start: int
    end: int
    tokens: frozenset[str]
    is_sign: bool
    is_empty: bool
    is_told: bool

    @property
    def weight(self) -> float:
        """Words that it counts for."""
        return 0.5 if self.is_sign else 1.0

    def matches(self, other: Word) -> bool:
        """Tell whether both are forms of one word."""
        return not self.tokens.isdisjoint(other.tokens)

    @property
    def is_possessive(self) -> bool:
        """Tell whether it names an owner, as in "Ana's sister"."""
        return _POSSESSIVE.search(self.text) is not None


def words_of(text: str) -> tuple[Word, ...]:
    """Split a text into words, each with its forms in all languages that have a stemmer."""
    words = []
    folds = [found[0].casefold() for found in _WORD.finditer(text)]
    empty_words = max(_EMPTY_WORDS, key=lambda known: sum(fold in known for fold in folds))
    is_title = _is_title(text, empty_words)
    for found in _WORD.finditer(text):
        plain, sign = found[0], found.lastgroup == "sign"
        folded = plain.casefold()
        # Of "Ana's", the s alone would match any other owner's.
        tokens = frozenset(
            token for token in tokenize_query(plain) if sign or len(token) > 1 or token == folded or token.isdigit()
        )
        within = _within(text, found.start())
        # A letter of its own is a name, as in "freezer A"; the English I is none.
        letter = within and len(plain) == 1 and plain.isupper() and folded != "i"
        # "May", "Will" and "IT" are names where the text writes its other empty words small.
        name = within and folded not in _LARGE_EMPTY and plain[0].isupper() and not is_title
        empty = (folded in _EMPTY_SIGNS or bool(_HIRAGANA.match(folded))) if sign else folded in empty_words
        empty = empty and not letter and not name
        digit = any(char.isnumeric() for char in plain) and not sign
        capital = any(char.isupper() for char in (plain if within else plain[1:]))
        words.append(Word(plain, found.start(), found.end(), tokens, sign, empty, not empty and (digit or capital)))
    return tuple(words)


def _is_title(text: str, empty_words: frozenset[str]) -> bool:
    """Tell whether most empty words within the text are written large, as in titles and in shouts."""
    within: list[bool] = [
        found[0][0].isupper()
        for found in _WORD.finditer(text)
        if len(found[0]) > 1 and found[0].casefold() in empty_words and _within(text, found.start())
    ]
    return sum(within) > 1 and 2 * sum(within) > len(within)


def _within(text: str, start: int) -> bool:
    before = text[:start].rstrip(" \t\n\"'«“„([¿¡")
    return bool(before) and before[-1] not in ".!?…:"
