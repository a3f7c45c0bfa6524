"""Text: what is blank, which texts are equal, tokens for lexical search, and chunks."""

from .chunks import Chunk, chunk_document, chunk_text
from .content import content_key, is_blank, is_question, near_key
from .headings import HEADINGS, is_markdown
from .tokens import TOKENIZER_VERSION, tokenize, tokenize_query, tokenize_query_words

__all__ = [
    "HEADINGS",
    "TOKENIZER_VERSION",
    "Chunk",
    "chunk_document",
    "chunk_text",
    "content_key",
    "is_blank",
    "is_markdown",
    "is_question",
    "near_key",
    "tokenize",
    "tokenize_query",
    "tokenize_query_words",
]
