"""Which process runs a task, so that a task whose process was killed is known to be dead."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["OWNER", "is_alive", "this_process"]

# The key of the note in a running episode's metadata; what ends the episode takes it away.
OWNER = "process"

_BOOT_FILE = "/proc/sys/kernel/random/boot_id"
_NUMBER_SPACE = "/proc/self/ns/pid"
# In /proc/<pid>/stat, counted behind the name in brackets: the state, and the start in clock ticks since the boot.
_STATE, _START = 0, 19
_ENDED_STATES = ("Z", "X")


def this_process() -> dict[str, Any]:
    """Note the process that runs: its host and its number there, and what tells it from others of that number.

    These are its start, the host's boot, and the space of process numbers, which each container has for itself; None
    where the system doesn't say.
    """
    pid = os.getpid()
    status = _status(pid)
    return {
        "host": socket.gethostname(),
        "pid": pid,
        "start": None if status is None else status[_START],
        "boot": _boot(),
        "space": _number_space(),
    }


def is_alive(note: object) -> bool | None:
    """Tell whether a noted process runs; None when it cannot be known, as of another host or container."""
    if not isinstance(note, Mapping) or note.get("host") != socket.gethostname():
        return None
    pid = note.get("pid")
    if isinstance(pid, bool) or not isinstance(pid, int) or not 0 < pid < 2**31:
        return None
    if _differ(note.get("boot"), _boot()):
        return False
    if _differ(note.get("space"), _number_space()):
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's, and there
    status = _status(pid)
    # A process that ended stays listed until its parent asks for it, and its number may be another one's by now.
    return status is None or not (status[_STATE] in _ENDED_STATES or _differ(note.get("start"), status[_START]))


def _differ(noted: object, now: str | None) -> bool:
    return noted is not None and now is not None and noted != now


def _status(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text[text.rfind(")") + 1 :].split()
    return fields if len(fields) > _START else None


def _boot() -> str | None:
    try:
        return Path(_BOOT_FILE).read_text(encoding="ascii").strip()
    except OSError:
        return None


def _number_space() -> str | None:
    try:
        return os.readlink(_NUMBER_SPACE)
    except OSError:
        return None
