"""A step worker that sends malformed messages: `python -m tests.step_worker.malformed_worker WHAT FD`.

WHAT: `at once` (instead of that it is ready), `number` (an answer to what it was not asked), `kind` (no answer at all),
`bytes` (a frame that cannot be read).
"""

from __future__ import annotations

import socket
import struct
import sys

from tidemark_replica.render.step_worker.wire import Answer, Channel, Order, Ready

if __name__ == "__main__":
    what, fd = sys.argv[1:]
    own = socket.socket(fileno=int(fd))
    channel = Channel(own)
    if what != "at once":
        channel.send(Ready())
        order = channel.receive()
    if what == "number":
        channel.send(Answer(order.members[0].number + 1, error="of another"))
    elif what == "bytes":
        own.sendall(struct.pack(">I", 3) + b"???")
    else:
        channel.send(Order(()))
    sys.stdin.buffer.read()
