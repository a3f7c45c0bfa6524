"""Program: any executable as the task function of a run."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from fluxmem_local.errors import InvalidInputError, OutsideFailureError

__all__ = ["CONTEXT_FILE_VARIABLE", "Program"]

CONTEXT_FILE_VARIABLE = "FLUXMEM_CONTEXT_FILE"


class Program:
    """Starts a command with the memory context on stdin and in a file; exit status 0 is success.

    stdout is the result and stderr the feedback. Calling it is one execution, as ``run_task`` wants it.

    Raises:
        InvalidInputError: there is no such program, before anything is recorded.
    """

    def __init__(self, command: Sequence[str], timeout_s: float | None = None) -> None:
        if shutil.which(command[0]) is None:
            raise InvalidInputError(f"{command[0]!r} is no program that can be started; nothing was recorded")
        self._command = list(command)
        self._timeout_s = timeout_s

    async def __call__(self, context: str) -> tuple[str, str, bool]:
        """Run once; returns result, feedback and success.

        Raises:
            OutsideFailureError: it could not be started, or was stopped at its time-out.
        """
        with tempfile.TemporaryDirectory(prefix="fluxmem-") as folder:
            file = Path(folder, "context.txt")
            file.write_text(context, encoding="utf-8")
            return await self._run(context, {**os.environ, CONTEXT_FILE_VARIABLE: str(file)})

    async def _run(self, context: str, environment: dict[str, str]) -> tuple[str, str, bool]:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environment,
                # A group of its own, so that a time-out ends what the program has started, too.
                start_new_session=True,
            )
        except OSError as error:
            raise OutsideFailureError(f"{self._command[0]} could not be started: {error.strerror or error}") from None
        try:
            out, err = await asyncio.wait_for(process.communicate(context.encode()), self._timeout_s)
        except asyncio.TimeoutError:
            # No wording can be as sure as who stopped it.
            raise OutsideFailureError(
                f"{self._command[0]} was stopped after {self._timeout_s:g} s without an end"
            ) from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        feedback = err.decode("utf-8", "replace").strip()
        status = process.returncode or 0
        if status != 0:
            ending = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
            feedback = f"{feedback}\n({ending})" if feedback else f"{self._command[0]}: {ending}"
        return out.decode("utf-8", "replace").strip(), feedback, status == 0
