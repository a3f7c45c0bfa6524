"""Which noted processes are known to run, known to be gone, and unknown."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from fluxmem_local.storage.owner_process import is_alive, this_process

ON_LINUX = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="the system has no /proc")
LAST_NUMBER = 2**31 - 1


def test_this_process_is_alive() -> None:
    note = this_process()
    assert note["pid"] == os.getpid()
    assert is_alive(note) is True


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"pid": LAST_NUMBER}, False),
        ({"start": "1"}, False),
        ({"boot": "an earlier one"}, False),
        ({"space": "pid:[1]"}, None),
        ({"space": "pid:[1]", "boot": "an earlier one"}, False),
        ({"host": "another"}, None),
        ({"host": "another", "boot": "an earlier one", "pid": LAST_NUMBER}, None),
        ({"start": None, "boot": None, "space": None}, True),
    ],
    ids=["ended", "number used again", "rebooted", "container", "rebooted container", "host", "rebooted host", "bare"],
)
@ON_LINUX
def test_what_a_note_tells(changes: dict[str, Any], expected: bool | None) -> None:
    assert is_alive({**this_process(), **changes}) is expected


@pytest.mark.parametrize("pid", [None, "1", True, 0, -1, 2**31, 2**70, 1.5])
def test_a_note_without_a_number_tells_nothing(pid: object) -> None:
    assert is_alive({**this_process(), "pid": pid}) is None


@pytest.mark.parametrize("note", [None, "x", 7, [], {}])
def test_what_is_no_note_tells_nothing(note: object) -> None:
    assert is_alive(note) is None


@ON_LINUX
def test_a_killed_process_is_gone_before_its_parent_asks_for_it() -> None:
    source = "import json, time; from fluxmem_local.storage.owner_process import this_process; "
    source += "print(json.dumps(this_process()), flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        note = json.loads(child.stdout.readline())
        assert is_alive(note) is True
        child.send_signal(signal.SIGKILL)
        # Its pipe closes when it ends; nobody has waited for it then, so it is a zombie.
        child.stdout.read()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert is_alive(note) is False
    assert is_alive(note) is False
