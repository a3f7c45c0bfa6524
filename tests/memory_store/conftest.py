"""Small facts with vectors for the tests of the memory store."""

from tests.storage.conftest import Maker, make

__all__ = ["Maker", "make"]
