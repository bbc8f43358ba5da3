"""A step worker that asks for a tree and is gone before it comes: `python -m tests.step_worker.dying_worker FD`."""

from __future__ import annotations

import socket
import sys

from tidemark_replica.render.step_worker.wire import Answer, Channel, Ready

if __name__ == "__main__":
    own = socket.socket(fileno=int(sys.argv[1]))
    channel = Channel(own)
    channel.send(Ready())
    order = channel.receive()
    own.shutdown(socket.SHUT_RD)
    channel.send(Answer(order.members[0].number, unknown=True))
    sys.stdin.buffer.read()
