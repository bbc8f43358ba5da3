"""What a child runs first, before it becomes the program: take the lock, write the record, exec.

    python launch.py HOME DIGEST PROGRAM ARGUMENTS...

The lock (an open file that the program and its children inherit) makes it impossible that two processes run for one
child, whenever the operator died: between starting a child and remembering it there is no gap, because the child
remembers itself. Stands alone: it is run as a file, without this package's imports.
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
