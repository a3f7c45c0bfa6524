"""Which process runs a task, so that a task whose process was killed is known to be dead."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any

__all__ = ["OWNER", "is_gone", "this_process"]

# The key of the note in a running episode's metadata; what ends the episode takes it away.
OWNER = "process"


def this_process() -> dict[str, Any]:
    """Note the process that runs: its host and its number there."""
    return {"host": socket.gethostname(), "pid": os.getpid()}


def is_gone(note: object) -> bool:
    """Tell whether a noted process is known to have ended; of other hosts, and without a note, nothing is known."""
    if not isinstance(note, Mapping) or note.get("host") != socket.gethostname():
        return False
    pid = note.get("pid")
    if not isinstance(pid, int) or pid < 1:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # another user's, and alive
    return False
