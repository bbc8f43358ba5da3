"""Processes that outlive the command that started them, with an identity that no other process shares.

Pid, start time (clock ticks since boot) and boot id identify a process: the kernel reuses a pid alone. The process
writes its own identity before it becomes the server,

    sh: write pids/<name> ─► exec <server>

so a server is on record from its first moment, even if its starter dies. Signals go through
a pidfd, which stays with the process it was opened for.
"""

import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidemark_devcluster.errors import StartFailed, StopFailed

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
KILL_SECONDS = 10.0
RECORD_SECONDS = 10.0
SHIM = (
    "read -r boot </proc/sys/kernel/random/boot_id && read -r stat </proc/$$/stat && "
    'printf "%s\\n%s\\n" "$boot" "$stat" >"$0" && exec "$@"'
)

# processes that this very program started: they must be reaped by it, or they stay zombies while it lives
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True)
class ProcessIdentity:
    """The identity of a process: pid, start time in clock ticks since boot, boot id."""

    pid: int
    ticks: int
    boot: str

    def is_running(self) -> bool:
        """Whether exactly this process is alive.

        One that was killed is alive until the last of its threads is gone, for so long it holds its port and
        files; and not alive from then on, reaped or not. A pidfd knows, `/proc/<pid>/stat` shows the first thread.
        """
        if (child := _children.get(self.pid)) is not None and child.poll() is not None:
            del _children[self.pid]
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            return _identity_of(self.pid) == self and not _has_ended(descriptor, 0)
        finally:
            os.close(descriptor)


def parse_stat(stat: str, boot: str) -> ProcessIdentity:
    """A line of `/proc/<pid>/stat`. The name in it may hold spaces and brackets."""
    pid, _, rest = stat.partition(" (")
    return ProcessIdentity(int(pid), int(rest.rpartition(")")[2].split()[19]), boot)


def _identity_of(pid: int) -> ProcessIdentity | None:
    """The identity of the process that has this pid now; None: there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return parse_stat(stat, BOOT_ID.read_text(encoding="ascii").strip())


def recorded(pid_file: Path) -> ProcessIdentity | None:
    """The identity in a pid file. A torn file was written by a shell that died before it became the server."""
    try:
        boot, stat = pid_file.read_text(encoding="utf-8", errors="replace").splitlines()
        return parse_stat(stat, boot)
    except (FileNotFoundError, ValueError, IndexError):
        return None


def running(pid_file: Path) -> ProcessIdentity | None:
    """The process of this pid file, if it is alive."""
    identity = recorded(pid_file)
    return identity if identity is not None and identity.is_running() else None


def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    log: Path,
    pid_file: Path,
    die_with_starter: bool,
) -> ProcessIdentity:
    """Start a server in a session of its own, its output appended to `log`; it is on record on return.

    `die_with_starter` has the kernel kill it when the calling thread ends: for tests, which may be killed too.
    """
    prefix: list[str] = []
    if die_with_starter:
        if (setpriv := shutil.which("setpriv")) is None:
            raise StartFailed("setpriv is missing: apt-get install util-linux")
        prefix = [setpriv, "--pdeathsig", "KILL", "--"]
    with log.open("ab") as output:
        child = subprocess.Popen(
            [*prefix, "/bin/sh", "-c", SHIM, str(pid_file), *command],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _children[child.pid] = child
    identity = _identity_of(child.pid)
    assert identity is not None, "a child is there until it is reaped"
    deadline = time.monotonic() + RECORD_SECONDS
    while recorded(pid_file) != identity and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)  # a `down` that comes right after finds it on record
    return identity


def stop(identity: ProcessIdentity, grace: float) -> None:
    """End exactly this process: SIGTERM, and SIGKILL if it is still there after `grace` seconds."""
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return
    try:
        # asked after the pidfd was opened: from here on the pid cannot pass to another process unnoticed
        if identity.is_running():
            _terminate(identity, descriptor, grace)
    finally:
        os.close(descriptor)
        if (child := _children.pop(identity.pid, None)) is not None:
            child.wait()


def _terminate(identity: ProcessIdentity, descriptor: int, grace: float) -> None:
    """Send SIGTERM, then SIGKILL, each with a timeout of its own. Raises StopFailed."""
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, KILL_SECONDS)):
        try:
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return
        if _has_ended(descriptor, patience):
            return
    raise StopFailed(f"process {identity.pid} outlived SIGKILL: `ps -o stat,wchan {identity.pid}` says why")


def _has_ended(descriptor: int, patience: float) -> bool:
    """Wait until the process of a pidfd has ended, for at most `patience` seconds."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(patience * 1000))


def started_at(identity: ProcessIdentity) -> float:
    """The start of a process: seconds since 1970, by the clock as it is now."""
    uptime = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    return time.time() - uptime + identity.ticks / os.sysconf("SC_CLK_TCK")


def resident_bytes(identity: ProcessIdentity) -> int:
    """The memory that a process has in use; 0 if it is gone."""
    try:
        status = Path(f"/proc/{identity.pid}/status").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    sizes = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(sizes[0]) * 1024 if sizes else 0
