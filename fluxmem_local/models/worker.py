"""One thread for one model: calls wait their turn, and calls of one kind that wait together run as one batch."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

__all__ = ["ModelWorker"]


@dataclass(frozen=True, slots=True, eq=False)
class _Request:
    kind: Hashable
    items: Sequence[Any]
    future: Future[list[Any]]


class ModelWorker:
    """Runs batches of a model off the event loop, one at a time.

    ``run(kind, items)`` gives one result an item, in their order. Requests of one kind that are waiting when the model
    becomes free are joined into one call of ``run``; an error in a joined call is found again request by request, so
    that it reaches only the caller it belongs to.
    """

    def __init__(self, run: Callable[[Any, list[Any]], list[Any]], name: str) -> None:
        self._run = run
        self._waiting: deque[_Request] = deque()
        self._guard = threading.Lock()
        self._name = name
        self._threads = self._new_thread()

    async def submit(self, kind: Hashable, items: Sequence[Any]) -> list[Any]:
        """Wait for the results of n items, in their order; the event loop goes on meanwhile."""
        return await asyncio.wrap_future(self.enqueue(kind, items))

    def enqueue(self, kind: Hashable, items: Sequence[Any]) -> Future[list[Any]]:
        """Put n items in the queue; the future gives their results."""
        request = _Request(kind, items, Future())
        with self._guard:
            self._waiting.append(request)
            self._threads.submit(self._serve)
        return request.future

    def close(self) -> None:
        """End the thread once what waits is done; a later call starts one again."""
        with self._guard:
            threads, self._threads = self._threads, self._new_thread()
        threads.shutdown(wait=False)

    def _new_thread(self) -> ThreadPoolExecutor:
        # The executor starts its thread at the first call.
        return ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"fluxmem-{self._name}")

    def _serve(self) -> None:
        with self._guard:
            if not self._waiting:
                # An earlier turn took this request along.
                return
            kind = self._waiting[0].kind
            taken = [request for request in self._waiting if request.kind == kind]
            self._waiting = deque(request for request in self._waiting if request.kind != kind)
        taken = [request for request in taken if request.future.set_running_or_notify_cancel()]
        if len(taken) > 1:
            try:
                results = self._run(kind, [item for request in taken for item in request.items])
            except Exception:
                for request in taken:
                    self._answer(request)
                return
            at = 0
            for request in taken:
                request.future.set_result(results[at : at + len(request.items)])
                at += len(request.items)
        elif taken:
            self._answer(taken[0])

    def _answer(self, request: _Request) -> None:
        try:
            request.future.set_result(self._run(request.kind, list(request.items)))
        except BaseException as error:
            request.future.set_exception(error)
