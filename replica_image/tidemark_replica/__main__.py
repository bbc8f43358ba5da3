"""`python -m tidemark_replica` runs one replica until a signal ends it.

Exit codes:

    0   SIGTERM or SIGINT ended the process
    2   the arguments are wrong, or the address or the scratch folder cannot be used
    10  a client asked for another instance configuration: start the process again
    11  the JVM of the Spark driver died: start the process again
    12  the command loop was stuck: start the process again (`process/watchdog.py`)
    13  like 11, and no executor had ever registered: no dataflow can be the cause

SIGUSR1 writes the stack of every thread to the standard error.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
from types import FrameType

from tidemark_protocol import tracing
from tidemark_replica.errors import AddressNotUsable, ConfigChanged, ScratchInUse
from tidemark_replica.kernels.worker import freeze_imports
from tidemark_replica.options import parse
from tidemark_replica.process.replica import Replica

THREAD_SWITCH_SECONDS = 0.001
"""The time for which a thread that computes keeps Python's lock from another one. A lookup passes through five threads,
and each waits so long behind every thread that plans or renders a query."""
EXIT_USAGE = 2
EXIT_CONFIG_CHANGED = 10
EXIT_SPARK_DIED = 11
EXIT_NO_EXECUTORS = 13


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    options = parse(sys.argv[1:])
    tracing.start("tidemark-replica")
    try:
        replica = Replica(options)
    except ScratchInUse as error:
        logging.error("%s", error)
        return EXIT_USAGE

    freeze_imports()  # a full collection walked the imported modules for 69 ms, and every answer waited for it

    def stop(signum: int, frame: FrameType | None) -> None:
        replica.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    try:
        if replica.run():
            return 0
        return EXIT_NO_EXECUTORS if replica.never_had_executors else EXIT_SPARK_DIED
    except ConfigChanged as change:
        logging.error("%s; the process ends and must be started again", change)
        return EXIT_CONFIG_CHANGED
    except AddressNotUsable as error:
        logging.error("%s", error)
        return EXIT_USAGE
    finally:
        replica.close()


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    # threads of pools may still wait for a disk or a server; this exit does not wait for them
    os._exit(code)
