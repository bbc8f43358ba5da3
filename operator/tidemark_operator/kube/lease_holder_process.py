"""The process that holds the Lease: a standby on the same machine takes over at once when it has ended.

    <boot>/<pid namespace>/<pid>/<start time>        in the Lease's annotation compute.tidemark.dev/process

A standby in the same pid namespace can check whether that process runs. Every other standby, such as one in another
pod, waits until the Lease has expired.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from tidemark_operator.process_liveness import ProcessId, identify, is_running


@cache
def this_process() -> str:
    """The annotation for this process."""
    process = identify(os.getpid())
    assert process is not None, "the calling process exists"
    return f"{_pids()}/{process.pid}/{process.start_time}"


def has_ended(process: str) -> bool:
    """Whether the process of an annotation has certainly ended; False where that cannot be known."""
    *pids, pid, started = process.split("/") if process.count("/") == 3 else ("", "", "")
    if "/".join(pids) != _pids() or not (pid.isdecimal() and started.isdecimal()):
        return False
    return not is_running(ProcessId(int(pid), int(started)))


def _pids() -> str:
    """The scope of pids: this boot and this pid namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
