"""Which process holds the Lease, for those on the same machine: it need not be waited for when it has ended.

    <boot>/<namespace of pids>/<pid>/<start time>        in the Lease's annotation compute.tidemark.dev/process

Who sees the same pids can tell whether that very process runs. All others, those in other pods for one, cannot, and
wait until the Lease has run out.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from tidemark_operator.process_liveness import ProcessId, identify, is_running


@cache
def this_process() -> str:
    """This process."""
    process = identify(os.getpid())
    assert process is not None, "a process that asks runs"
    return f"{_pids()}/{process.pid}/{process.start_time}"


def has_ended(process: str) -> bool:
    """Whether it is certain that the process has ended; what cannot be read says nothing."""
    *pids, pid, started = process.split("/") if process.count("/") == 3 else ("", "", "")
    if "/".join(pids) != _pids() or not (pid.isdecimal() and started.isdecimal()):
        return False
    return not is_running(ProcessId(int(pid), int(started)))


def _pids() -> str:
    """Where a pid means what it means here: until the next boot, and in this namespace of pids."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
