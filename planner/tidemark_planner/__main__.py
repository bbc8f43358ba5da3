"""`python -m tidemark_planner --listen unix:///path`: serve until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import logging
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path

from tidemark_planner.service.server import MAX_PLAN_SECONDS, serve
from tidemark_planner.service.worker_process import adopt_orphans
from tidemark_protocol import tracing
from tidemark_protocol.errors import CertificateUnreadable
from tidemark_protocol.tls.folder import CertificateFolder

EXIT_USAGE = 2


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="tidemark-planner", description="Plans SQL for Tidemark's operator.", allow_abbrev=False
    )
    parser.add_argument("--listen", required=True, help="unix:///path of the socket, or host:port")
    parser.add_argument(
        "--tls-dir", type=Path, help="a folder with tls.crt, tls.key and ca.crt; they are read again when they change"
    )
    parser.add_argument(
        "--plan-timeout",
        type=float,
        default=MAX_PLAN_SECONDS,
        help="the most seconds of processor time that one plan may take",
    )
    parser.add_argument(
        "--scratch",
        type=Path,
        help="a folder for the files of the JVMs (default: a temporary folder, which is removed at the end)",
    )
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    adopt_orphans()
    tracing.start("tidemark-planner")
    own = None if arguments.scratch else Path(tempfile.mkdtemp(prefix="tidemark-planner-"))
    scratch = own or arguments.scratch.absolute()
    tls = CertificateFolder(arguments.tls_dir.absolute()) if arguments.tls_dir else None
    try:
        status = serve(arguments.listen, scratch, arguments.plan_timeout, stopped, tls)
    except CertificateUnreadable as error:
        logging.error("%s", error)
        status = EXIT_USAGE
    if own:
        shutil.rmtree(own, ignore_errors=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
