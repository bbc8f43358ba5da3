"""A step worker that sends malformed messages: `python -m tests.step_worker.malformed_worker WHAT FD`.

WHAT: `at once` (instead of that it is ready), `kind` (no answer at all), `bytes` (a message that cannot be read).
"""

from __future__ import annotations

import sys
from multiprocessing.connection import Connection

from tidemark_replica.render.step_worker.wire import Ready

if __name__ == "__main__":
    what, fd = sys.argv[1:]
    driver = Connection(int(fd))
    if what != "at once":
        driver.send(Ready())
        driver.recv()
    if what == "bytes":
        driver.send_bytes(b"???")
    else:
        driver.send("what?")
    sys.stdin.buffer.read()
