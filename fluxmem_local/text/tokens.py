"""Tokens for lexical search, in any language."""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any

import regex

from fluxmem_local.errors import InvalidInputError

from .content import check_text

__all__ = ["TOKENIZER_VERSION", "tokenize", "tokenize_query", "tokenize_query_words"]

# Raise it whenever the same text would give other tokens: indexes of stored tokens are rebuilt then.
TOKENIZER_VERSION = 2

# Scripts written without spaces, and Hangul, whose words carry their particles: unigrams and bigrams of these.
_GRAM = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\u30fc"
_LETTERS = rf"[[\p{{L}}\p{{M}}\p{{N}}\u200d]--[{_GRAM}]]"
_PIECES = regex.compile(
    rf"""(?V1)
    (?P<emoji> \p{{Regional_Indicator}}{{2}}
      | [0-9\#*]\ufe0f?\u20e3
      | [[\p{{So}}\p{{Sc}}\p{{Extended_Pictographic}}]--\p{{ASCII}}]
        [\ufe0f\p{{Emoji_Modifier}}]* (?: \u200d\p{{Extended_Pictographic}}[\ufe0f\p{{Emoji_Modifier}}]* )*+ )
  | (?P<grams> [{_GRAM}][{_GRAM}\p{{M}}]* )
  | (?P<word> (?!\u200d) {_LETTERS}++ (?: [_.\-/:@'+&=?%\#~\\]{{1,3}} {_LETTERS}++ )*+ (?: \+\+ | \# )? )
    """,
    regex.VERBOSE,
)
_UNSEEN = regex.compile(r"(?V1)[\p{Cf}--\u200d]")
_DIGIT = regex.compile(r"(?V1)[\p{Nd}--[0-9]]")
_EMOJI_STYLE = regex.compile(r"[\ufe0f\p{Emoji_Modifier}]")
_JOINTS = regex.compile(r"[^\p{L}\p{M}\p{N}\u200d]+")
# camelCase, HTTPServer, NXR24
_SEAMS = regex.compile(
    r"(?<=\p{Ll})(?=\p{Lu})|(?<=\p{Lu})(?=\p{Lu}\p{Ll})|(?<=\p{L}\p{M}*)(?=\p{N})|(?<=\p{N})(?=\p{L})"
)
_LONGEST = 256
_STEMMING = threading.Lock()

# Frequent words that tell Latin-script languages apart, casefolded; a word may vote for several.
_FUNCTION_WORDS = {
    "english": "the a i in on at as and of to is are was were that this with for from it not have you be by an how",
    "german": "der die das und ist nicht ein eine einen einem mit von zu den dem auf für im sich auch wie wird wo",
    "french": "le la les et est des du une un que qui dans pour pas sur avec ce cette sont au aux il elle vous où l d",
    "spanish": "el los las y es una un que en por para con no del se su como está son más pero lo al qué dónde",
    "italian": "il lo la gli le e è una un che di per con non del della sono nel alla come più dei delle anche dove",
    "portuguese": "o a os as e é uma um que de em por para com não do da dos das se são ao mais como na no onde",
    "dutch": "de het een en is niet van op te dat die met voor zijn aan ook er maar wordt naar bij wat waar",
    "swedish": "och är att det som en ett inte på av för med den till har jag om var från vad",
    "danish": "og er at det som en et ikke på af for med den til har jeg om var fra hvad hvor",
    "norwegian": "og er å det som en et ikke på av for med den til har jeg om var fra hva hvor ikkje",
    "finnish": "ja on ei se että oli hän ovat joka mutta tämä kun niin myös kuin mikä missä",
    "hungarian": "a az és nem egy hogy is van volt ez meg de ha csak mint hol mi",
    "romanian": "și este nu un o în de la cu pe că care sunt din mai pentru ce unde",
    "turkish": "ve bir bu için ile da de ne çok daha olarak gibi değil var nerede",
    "polish": "i w na nie się jest do to że z jak po co ale czy są od dla przez gdzie",
    "czech": "a v na se je že to s z do jako ale si pro jsou by co kde",
    "catalan": "el la els les i és una un que de en per amb no del al com més són on",
    "indonesian": "yang dan di ini itu dengan untuk tidak dari dalam adalah ke pada akan juga apa",
}
_SCRIPT_STEMMERS = {
    "GREEK": "greek",
    "CYRILLIC": "russian",
    "ARABIC": "arabic",
    "DEVANAGARI": "hindi",
    "TAMIL": "tamil",
    "ARMENIAN": "armenian",
}
_CYRILLIC_ENDINGS = "аеёиіїоуыэєюяйь"
# Marks of these scripts are left out in everyday writing; in Indic scripts they are vowels and stay.
_MARKS_OPTIONAL = {"LATIN", "GREEK", "CYRILLIC", "ARABIC", "HEBREW"}
# What is typed where a keyboard lacks the letter; Unicode has no mark to take from these.
_PLAIN_LETTERS = str.maketrans(
    {"ı": "i", "ł": "l", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "ħ": "h", "æ": "ae", "œ": "oe"}
)


def tokenize(text: str, language: str | None = None) -> list[str]:
    """Split a document into tokens for lexical search.

    A word gives itself (casefolded, NFKC), its form without accents, and its stem. Stems of Latin-script words carry
    their language (``dorm·french``), because languages share spellings but not stems. Identifiers, file names and URLs
    give themselves and their parts. Chinese, Japanese, Korean, Thai, Lao, Khmer and Burmese give single characters and
    pairs: pairs carry the meaning, single ones let a query of one character match.

    Args:
        text: the document.
        language: the stemmer's language for Latin-script words, such as ``"french"``; None: by a vote of function
            words, English without one.

    Raises:
        InvalidInputError: not a text, or an unknown language.
    """
    pieces = _pieces(text)
    return _tokens(pieces, (_known(language),) if language else (_vote(pieces) or "english",))


def tokenize_query(text: str, language: str | None = None) -> list[str]:
    """Split a query into tokens for lexical search.

    As ``tokenize``, with the stems of more languages: a query of a word or two cannot say which language it is, and
    its document may have been taken for English. Tokens that no document holds cost nothing.
    """
    return [token for word in tokenize_query_words(text, language) for token in word]


def tokenize_query_words(text: str, language: str | None = None) -> tuple[tuple[str, ...], ...]:
    """Split a query into its words, each as the tokens that stand for it; ``tokenize_query`` gives them in one list."""
    return _query_words(check_text(text), language)


# A step asks for the words of one question several times.
@lru_cache(maxsize=64)
def _query_words(text: str, language: str | None) -> tuple[tuple[str, ...], ...]:
    pieces = _pieces(text)
    chosen = _known(language) if language else _vote(pieces)
    languages = tuple(_FUNCTION_WORDS) if chosen is None else tuple(dict.fromkeys((chosen, "english")))
    return tuple(tuple(_tokens([piece], languages)) for piece in pieces)


def _pieces(text: str) -> list[tuple[str, str]]:
    plain = unicodedata.normalize("NFKC", check_text(text).replace("\u200b", " ").replace("\u2019", "'"))
    plain = _DIGIT.sub(lambda digit: str(unicodedata.digit(digit[0], digit[0])), _UNSEEN.sub("", plain))
    return [(found.lastgroup or "", found[0]) for found in _PIECES.finditer(plain)]


def _tokens(pieces: list[tuple[str, str]], languages: tuple[str, ...]) -> list[str]:
    tokens: list[str] = []
    for kind, piece in pieces:
        if kind == "word":
            tokens.extend(_word_tokens(piece, languages))
        elif kind == "grams":
            tokens.extend(_grams(piece))
        else:
            tokens.append(_EMOJI_STYLE.sub("", piece))
    return tokens


def _grams(run: str) -> Iterator[str]:
    units = regex.findall(r"\X", run)
    yield from units
    for first, second in pairwise(units):
        yield first + second


@lru_cache(maxsize=1 << 16)
def _word_tokens(word: str, languages: tuple[str, ...]) -> tuple[str, ...]:
    tokens = [_fold(word)]
    joined = [part for part in _JOINTS.split(word) if part]
    for part in joined:
        seamless = _SEAMS.split(part)
        if len(joined) > 1 or tokens[0] != _fold(part):
            tokens.append(_fold(part))
        if len(seamless) > 1:
            tokens.extend(_fold(piece) for piece in seamless)
    plain = [token for token in dict.fromkeys(tokens) if len(token) > 1 and (token.isalpha() or not token.isascii())]
    return tuple(tokens) + tuple(variant for token in plain for variant in _variants(token, languages))


def _fold(word: str) -> str:
    # The dot that casefolding leaves on a Turkish capital i would hide the word from an English query.
    folded = unicodedata.normalize("NFKC", word.replace("\u200d", "").casefold()).replace("i\u0307", "i")
    return folded[:_LONGEST]


def _variants(word: str, languages: tuple[str, ...]) -> Iterator[str]:
    script = unicodedata.name(word[0], "").partition(" ")[0]
    bare = word
    if script in _MARKS_OPTIONAL:
        split = unicodedata.normalize("NFD", word)
        bare = "".join(mark for mark in split if not unicodedata.combining(mark)).translate(_PLAIN_LETTERS)
        bare = unicodedata.normalize("NFC", bare) or word
        if bare != word:
            yield bare
    if script == "LATIN":
        for language in languages:
            if stem := _stem(language, word):
                yield f"{stem}\u00b7{language}"
    elif script == "HEBREW":
        # The article, prepositions and "and" are written onto the word.
        if len(bare) > 3 and bare[0] in "הובלמכש":
            yield bare[1:]
    elif script in _SCRIPT_STEMMERS:
        stem = _stem(_SCRIPT_STEMMERS[script], bare if script == "ARABIC" else word)
        if stem and stem not in (word, bare):
            yield stem
        # The Russian stemmer takes the plural of some nouns for a verb; endings of one letter are cut here as well.
        if (
            script == "CYRILLIC"
            and len(light := word.rstrip(_CYRILLIC_ENDINGS)) > 2
            and light not in (word, bare, stem)
        ):
            yield light


@cache
def _stemmer(language: str) -> Any:
    import snowballstemmer

    return snowballstemmer.stemmer(language) if language in snowballstemmer.algorithms() else None


def _stem(language: str, word: str) -> str | None:
    # A stemmer keeps the word it works on in itself.
    with _STEMMING:
        stemmer = _stemmer(language)
        return str(stemmer.stemWord(word)) if stemmer else None


def _known(language: str) -> str:
    if language not in _FUNCTION_WORDS:
        raise InvalidInputError(f"language={language!r} has no stemmer here; known are {', '.join(_FUNCTION_WORDS)}")
    return language


@cache
def _voters() -> dict[str, list[str]]:
    voters: dict[str, list[str]] = {}
    for language, words in _FUNCTION_WORDS.items():
        for word in words.split():
            voters.setdefault(unicodedata.normalize("NFKC", word.casefold()), []).append(language)
    return voters


def _vote(pieces: list[tuple[str, str]]) -> str | None:
    votes = dict.fromkeys(_FUNCTION_WORDS, 0)
    voters = _voters()
    for kind, piece in pieces:
        if kind == "word":
            for part in _fold(piece).split("'"):
                for language in voters.get(part, ()):
                    votes[language] += 1
    best = max(votes.values())
    # The dictionary's order settles ties, English first.
    return next(language for language, count in votes.items() if count == best) if best else None
