"""The launcher of a child: take the lock, write the record, exec the program.

    python launch.py HOME DIGEST PROGRAM ARGUMENTS...

The lock is an open file that the program and its children inherit; it keeps a second process of the same child from
starting. The child writes its own record, so an operator that dies at any moment leaves no process without one. The
module runs as a file and imports nothing of this package.
"""

import fcntl
import json
import os
import sys
import time

LOCK_TAKEN = 75


def main(home: str, digest: str, *command: str) -> None:
    lock = os.open(os.path.join(home, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(LOCK_TAKEN)
    os.set_inheritable(lock, True)
    with open("/proc/self/stat") as file:
        start_time = int(file.read().rpartition(")")[2].split()[19])
    record = {"pid": os.getpid(), "startTime": start_time, "digest": digest, "startedAt": int(time.time() * 1000)}
    target = os.path.join(home, "process.json")
    with open(target + ".new", "w") as file:
        json.dump(record, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(target + ".new", target)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
