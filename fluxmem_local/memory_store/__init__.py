"""The only write path: graph, database and indices change together or not at all."""

from fluxmem_local.storage.records import HistoryEntry, Outcome

from .past import PastStore, Replaced, replaced_since
from .receipts import Receipt, VerifyReport
from .removal import LEARNED_FROM
from .store import MemoryStore
from .transaction import Transaction

__all__ = [
    "LEARNED_FROM",
    "HistoryEntry",
    "MemoryStore",
    "Outcome",
    "PastStore",
    "Receipt",
    "Replaced",
    "Transaction",
    "VerifyReport",
    "replaced_since",
]
