"""A process that answers questions about the catalogue, one after the other, until its connection ends.

    Question ──► answered within limits of memory and CPU ──► CatalogueReply or CatalogueError

Its standard input is its end of the connection.

A question that computes without end, or takes memory without end, ends this process and nothing else: a parser of SQL,
a regular expression and a function of DuckDB cannot be interrupted from within.
"""

from __future__ import annotations

import resource
import signal
import sys
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection

from tidemark_pgwire.catalogue.answering import CatalogueReply, Question, reply_to
from tidemark_pgwire.catalogue.facts import CatalogueError

MEMORY_MAX = 512 << 20
"""Bytes of data, also those that are reserved alone. Below 400 MiB DuckDB ends by a signal where it could say why."""
CPU_SECONDS = 3
"""The CPU time of a question, with its parse. DuckDB's own limit ends a statement before that."""


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C of the terminal reaches the parent, which decides
    connection = Connection(0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _limit(resource.RLIMIT_DATA, MEMORY_MAX)
    with suppress(EOFError):
        while True:
            question: Question = connection.recv()
            used = resource.getrusage(resource.RUSAGE_SELF)
            _limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + 1 + CPU_SECONDS)
            connection.send(_answer(question))


def _limit(of: int, value: int) -> None:
    resource.setrlimit(of, (value, resource.getrlimit(of)[1]))


def _answer(question: Question) -> CatalogueReply | CatalogueError:
    """The reply to a question, or the error of the statement; no exception leaves the function."""
    try:
        return reply_to(question)
    except CatalogueError as error:
        return CatalogueError(error.sqlstate, str(error))
    except MemoryError:
        return CatalogueError("53200", "a statement about the catalogue needs too much memory; ask for less")
    except Exception as error:
        # without the text of the error, which may have pieces of the statement
        print("".join(traceback.format_tb(error.__traceback__)), type(error).__name__, file=sys.stderr, flush=True)
        return CatalogueError("XX000", f"the catalogue failed at this statement ({type(error).__name__}): a defect")


if __name__ == "__main__":
    main()
