"""Runs statements of DuckDB on one Delta table, `d`: one line of JSON each, one answer each."""

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import duckdb

package = find_spec("duckdb_extension_delta")
assert package is not None
assert package.origin is not None
[extension] = Path(package.origin).parent.rglob("delta.duckdb_extension")
connection = duckdb.connect()
connection.execute(f"LOAD '{extension}'")
connection.execute(f"ATTACH '{sys.argv[1]}' AS d (TYPE delta)")
print("ready", flush=True)
for line in sys.stdin:
    try:
        connection.execute(json.loads(line))
        print("ok", flush=True)
    except duckdb.Error as error:
        print(" ".join(str(error).split()), flush=True)
