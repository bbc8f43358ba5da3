"""The processes that answer questions about the catalogue: a few, each with a thread that waits for it.

A process that ended, that takes longer than it may, or that has answered many questions is replaced by a new one.
"""

from __future__ import annotations

import asyncio
import atexit
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pipe

from tidemark_pgwire.catalogue.answering import CatalogueReply, Question
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
        self._connection, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(_COMMAND, stdin=theirs.fileno(), stdout=2)
        self._asked, self._is_late = 0, False
        _all.add(self)

    @property
    def usable(self) -> bool:
        return not self._is_late and self._process.poll() is None and self._asked < QUESTIONS_MAX

    def ask(self, question: Question) -> CatalogueReply | CatalogueError:
        """Answer a question. An error that ends the process is the question's error, too."""
        deadline = threading.Timer(TIME_MAX_S + (0 if self._asked else _START_S), self._kill_late)
        self._asked += 1
        deadline.start()
        try:
            self._connection.send(question)
            answered: CatalogueReply | CatalogueError = self._connection.recv()
        except (EOFError, OSError):
            return self._end_and_explain()
        finally:
            deadline.cancel()
        return answered

    def _kill_late(self) -> None:
        """Kill the process: its end of the connection closes, and the thread that asked waits no longer."""
        self._is_late = True
        self._process.kill()

    def _end_and_explain(self) -> CatalogueError:
        """End the process, and return the error that says why it gave no answer."""
        self.end()
        if self._is_late:
            return CatalogueError("57014", f"a statement about the catalogue may take {TIME_MAX_S:g} s; ask for less")
        if self._process.returncode == -signal.SIGXCPU:
            return CatalogueError("57014", "a statement about the catalogue computes for too long; ask for less")
        return CatalogueError("53200", "a statement about the catalogue ended its process, as by its memory")

    def end(self) -> None:
        """Its own limits may have ended it already: it gets a moment to be found so."""
        self._connection.close()
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
