"""The processes of a node, as the host sees them. A process is identified by its parent."""

import contextlib
import os
import select
import signal
from pathlib import Path

from tidemark_devcluster.errors import StopFailed

KILL_SECONDS = 60.0


def children(parent: int) -> list[int]:
    """The pids, on the host, of a process's children."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text(encoding="utf-8", errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(stat.rpartition(")")[2].split()[1]) == parent:
                found.append(int(entry))
    return found


def first_child(parent: int) -> int | None:
    """`unshare` has one child: the first process of the namespaces that it made."""
    return next(iter(children(parent)), None)


def program_name(pid: int) -> str | None:
    """The name of the file that a process runs; None when it is gone."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return os.path.basename(arguments[0].decode(errors="replace"))


def network_namespace(pid: int) -> str | None:
    """The network namespace of a process."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except (FileNotFoundError, ProcessLookupError):
        return None


def kill_first_child(parent: int) -> None:
    """Kill the first process of the namespaces, and with it all of them; waits until the last one is gone."""
    if (first := first_child(parent)) is None:
        return
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(first)
        try:
            if first_child(parent) == first:  # still: the pid has not passed to another before it was opened
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                poller = select.poll()
                poller.register(descriptor, select.POLLIN)
                # it is over when all processes of its namespace are
                if not poller.poll(KILL_SECONDS * 1000):
                    raise StopFailed("processes of the node outlived SIGKILL: `ps -e -o pid,stat,wchan,args` says why")
        finally:
            os.close(descriptor)
