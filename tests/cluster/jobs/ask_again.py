"""A client of the SQL port, in a pod: it asks one question again and again until the file /tmp/end is there.

    ask_again connections|questions SQL     on a connection for each question, or on one as long as it lives

libpq's variables (PGHOST ...) name the server. Each line of output is one JSON object: when a try began, the seconds
that it took, and the rows or the error. A try that takes too long ends the process by SIGALRM.
"""

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import psycopg

LONGEST_SECONDS = 60
PAUSE_SECONDS = 0.02
END = Path("/tmp/end")


def main(kind: str, sql: str) -> None:
    connection: psycopg.Connection[Any] | None = None
    while not END.exists():
        signal.alarm(LONGEST_SECONDS)
        began, found = time.time(), dict[str, Any]()
        try:
            if connection is None or connection.closed:
                connection = psycopg.connect(autocommit=True)
            found["rows"] = connection.execute(sql.encode()).fetchall()
        except psycopg.Error as error:
            found["error"], found["sqlstate"] = f"{type(error).__name__}: {error}", error.sqlstate
        if kind == "connections" and connection is not None:
            connection.close()
        signal.alarm(0)
        print(json.dumps({"began": began, "seconds": time.time() - began, **found}), flush=True)
        time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    main(*sys.argv[1:])
