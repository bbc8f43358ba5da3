"""The processes that answer questions about the catalogue: a few, each with a thread that waits for it.

A process that ended, that takes longer than it may, or that has answered many questions is replaced by a new one.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from tidemark_pgwire.catalogue.answering import LENGTH_BYTES, CatalogueReply, Question
from tidemark_pgwire.catalogue.facts import CatalogueError

CHILDREN, WAITING_MAX = 2, 64
TIME_MAX_S = 60.0
"""The time of a question. The process itself ends earlier, by its limits, unless it waits."""
QUESTIONS_MAX = 1_000
"""The questions of a process, which is replaced then: memory that it lost does not add up."""
_START_S = 60.0
_COMMAND = [sys.executable, "-P", "-m", "tidemark_pgwire.catalogue.child"]
_pool = ThreadPoolExecutor(CHILDREN, thread_name_prefix="catalogue")
_own = threading.local()
_all: set[_Child] = set()
_waiting = 0


async def ask(question: Question) -> CatalogueReply:
    """Raises CatalogueError, also where too many wait."""
    global _waiting
    if _waiting >= WAITING_MAX:
        raise CatalogueError("53300", f"{WAITING_MAX} statements about the catalogue wait already; ask again")
    _waiting += 1
    try:
        return await asyncio.get_running_loop().run_in_executor(_pool, _ask, question)
    finally:
        _waiting -= 1


def _ask(question: Question) -> CatalogueReply:
    child: _Child | None = getattr(_own, "child", None)
    if child is None or not child.usable:
        if child is not None:
            child.end()
        child = _own.child = _begin_child()
    answered = child.ask(question)
    if isinstance(answered, CatalogueError):
        raise answered
    return answered


def _begin_child() -> _Child:
    """Raises CatalogueError: the machine has no room for a process."""
    try:
        return _Child()
    except OSError as error:
        message = f"a process for statements about the catalogue cannot be started: {error.strerror}; ask again"
        raise CatalogueError("53000", message) from None


class _Child:
    def __init__(self) -> None:
        self._process = subprocess.Popen(_COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self._asked = 0
        _all.add(self)

    @property
    def usable(self) -> bool:
        return self._process.poll() is None and self._asked < QUESTIONS_MAX

    def ask(self, question: Question) -> CatalogueReply | CatalogueError:
        """Answer a question. An error that ends the process is the question's error, too."""
        data = pickle.dumps(question)
        until = time.monotonic() + TIME_MAX_S + (0 if self._asked else _START_S)
        self._asked += 1
        try:
            self._write(len(data).to_bytes(LENGTH_BYTES) + data)
            size = int.from_bytes(self._read(LENGTH_BYTES, until))
            answered: CatalogueReply | CatalogueError = pickle.loads(self._read(size, until))
        except TimeoutError:
            self.end()
            return CatalogueError("57014", f"a statement about the catalogue may take {TIME_MAX_S:g} s; ask for less")
        except (EOFError, OSError):
            return self._end_and_explain()
        return answered

    def _end_and_explain(self) -> CatalogueError:
        """End the process, and return the error that says why it gave no answer."""
        self.end()
        if self._process.returncode == -signal.SIGXCPU:
            return CatalogueError("57014", "a statement about the catalogue computes for too long; ask for less")
        return CatalogueError("53200", "a statement about the catalogue ended its process, as by its memory")

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._process.stdin.fileno(), rest) :]

    def _read(self, size: int, until: float) -> bytes:
        assert self._process.stdout is not None
        place = self._process.stdout.fileno()
        ready = select.poll()  # `select` takes no descriptor above 1,023
        ready.register(place, select.POLLIN)
        found = bytearray()
        while len(found) < size:
            if not ready.poll(max(0.0, until - time.monotonic()) * 1_000):
                raise TimeoutError
            data = os.read(place, min(size - len(found), 1 << 20))
            if not data:
                raise EOFError
            found += data
        return bytes(found)

    def end(self) -> None:
        """Its own limits may have ended it already: it gets a moment to be found so."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _all.discard(self)


@atexit.register
def end_all() -> None:
    """End all processes, while none is asked. The next question begins another."""
    for child in list(_all):
        child.end()
