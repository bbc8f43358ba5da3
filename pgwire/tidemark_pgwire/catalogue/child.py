"""A process that answers questions about the catalogue, one after the other, until its standard input ends.

    length, Question ──stdin──► answered within limits of memory and CPU
      ──stdout──► length, CatalogueReply or CatalogueError

What computes without end, or takes memory without end, ends this process and nothing else: a parser of SQL, a regular
expression and a function of DuckDB cannot be interrupted from within.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import sys
import traceback
from typing import BinaryIO

from tidemark_pgwire.catalogue.answering import LENGTH_BYTES, CatalogueReply, Question, reply_to
from tidemark_pgwire.catalogue.facts import CatalogueError

MEMORY_MAX = 512 << 20
"""Bytes of data, also those that are reserved alone. Below 400 MiB DuckDB ends by a signal where it could say why."""
CPU_SECONDS = 3
"""The CPU time of a question, with its parse. DuckDB's own limit ends a statement before that."""


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C of the terminal reaches the parent, which decides
    questions, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints is no reply
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _limit(resource.RLIMIT_DATA, MEMORY_MAX)
    while (question := _read(questions)) is not None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        _limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + 1 + CPU_SECONDS)
        data = pickle.dumps(_answer(question))
        replies.write(len(data).to_bytes(LENGTH_BYTES) + data)
        replies.flush()


def _limit(of: int, value: int) -> None:
    resource.setrlimit(of, (value, resource.getrlimit(of)[1]))


def _read(questions: BinaryIO) -> Question | None:
    length = questions.read(LENGTH_BYTES)
    if len(length) < LENGTH_BYTES:
        return None
    question: Question = pickle.loads(questions.read(int.from_bytes(length)))
    return question


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
