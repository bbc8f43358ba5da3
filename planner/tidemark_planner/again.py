"""One planner after the other, in one container: Kubernetes starts a container that ends ever more rarely, and a
planner that has to be replaced after a bad statement would be away for all others for minutes.

    python -m tidemark_planner --again ...  ─► python -m tidemark_planner ...   ends with REPLACE_ME ─► another one
                                                                              ends otherwise ─► so does this one
"""

from __future__ import annotations

import logging
import signal
import subprocess
from collections.abc import Sequence

LOG = logging.getLogger(__name__)


def run_again(command: Sequence[str], replace_me: int) -> int:
    """The exit status of the last one, as a shell gives it. SIGTERM and SIGINT are passed on, and it is the last one
    then. For a main thread."""
    stopping = False
    child: subprocess.Popen[bytes] | None = None

    def stop(number: int, _: object) -> None:
        nonlocal stopping
        stopping = True
        if child is not None:
            child.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    while True:
        child = subprocess.Popen(command)
        if stopping:  # it was told before there was this one to be told
            child.terminate()
        status = child.wait()
        if stopping or status != replace_me:
            return 128 - status if status < 0 else status
        LOG.warning("the planner is replaced")
