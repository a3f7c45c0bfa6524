"""Text: what is blank, which texts are equal, tokens for lexical search, and chunks."""

from .chunks import chunk_text
from .content import content_key, is_blank, near_key
from .tokens import TOKENIZER_VERSION, tokenize, tokenize_query

__all__ = ["TOKENIZER_VERSION", "chunk_text", "content_key", "is_blank", "near_key", "tokenize", "tokenize_query"]
