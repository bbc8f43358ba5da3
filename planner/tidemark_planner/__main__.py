"""`python -m tidemark_planner --listen unix:///path`: serve until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import tempfile
import threading
from pathlib import Path

from tidemark_planner.again import run_again
from tidemark_planner.server import PLAN_SECONDS, REPLACE_ME, end_process, serve
from tidemark_protocol.errors import CertificateUnreadable
from tidemark_protocol.tls.folder import CertificateFolder

EXIT_USAGE = 2
AGAIN = "--again"
"""For a container, with whose end all in it ends."""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="tidemark-planner", description="Plans SQL for Tidemark's operator.", allow_abbrev=False
    )
    parser.add_argument("--listen", required=True, help="unix:///path of the socket, or host:port")
    parser.add_argument("--tls-dir", type=Path, help="tls.crt, tls.key and ca.crt; read again when they change")
    parser.add_argument("--plan-timeout", type=float, default=PLAN_SECONDS, help="seconds that one plan may take")
    parser.add_argument(
        "--scratch", type=Path, help="for the files of its JVM (default: a folder of its own, which it removes)"
    )
    parser.add_argument(AGAIN, action="store_true", help="start another one when it has to be replaced")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    if arguments.again:
        given = [argument for argument in sys.argv[1:] if argument != AGAIN]
        sys.exit(run_again([sys.executable, "-m", "tidemark_planner", *given], REPLACE_ME))
    logging.getLogger("py4j").setLevel(logging.WARNING)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    own = None if arguments.scratch else Path(tempfile.mkdtemp(prefix="tidemark-planner-"))
    scratch = own or arguments.scratch.absolute()
    scratch.mkdir(parents=True, exist_ok=True)
    tls = CertificateFolder(arguments.tls_dir.absolute()) if arguments.tls_dir else None
    try:
        status = serve(arguments.listen, arguments.plan_timeout, stopped, tls, scratch)
    except CertificateUnreadable as error:
        logging.error("%s", error)
        status = EXIT_USAGE
    end_process(status, own)


if __name__ == "__main__":
    main()
