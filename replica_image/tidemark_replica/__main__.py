"""`python -m tidemark_replica`: one replica, until it is told to end.

0   ended by SIGTERM or SIGINT
2   wrong arguments, or an address or scratch folder that cannot be used
10  another instance configuration was asked for: start me again
11  the Spark driver's JVM died: start me again
12  the command loop was stuck: start me again (`process/watchdog.py`)
13  the same as 11, and no executor had ever come: nothing that was to be computed is the cause

SIGUSR1 writes where every thread is to the standard error.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
from types import FrameType

from tidemark_replica.errors import AddressNotUsable, ConfigChanged, ScratchInUse
from tidemark_replica.options import parse
from tidemark_replica.process.replica import Replica

EXIT_USAGE = 2
EXIT_CONFIG_CHANGED = 10
EXIT_SPARK_DIED = 11
EXIT_NO_EXECUTORS = 13


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    options = parse(sys.argv[1:])
    try:
        replica = Replica(options)
    except ScratchInUse as error:
        logging.error("%s", error)
        return EXIT_USAGE

    def stop(signum: int, frame: FrameType | None) -> None:
        replica.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    try:
        if replica.run():
            return 0
        return EXIT_NO_EXECUTORS if replica.without_executors else EXIT_SPARK_DIED
    except ConfigChanged as change:
        logging.error("%s; ending, to be started again", change)
        return EXIT_CONFIG_CHANGED
    except AddressNotUsable as error:
        logging.error("%s", error)
        return EXIT_USAGE
    finally:
        replica.close()


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    # a pool's thread may still wait for a disk or a server: there is nothing left that it could do
    os._exit(code)
