"""Runs commands of dbt in one process of dbt's environment, which takes seconds to start: JSON lists of arguments, one
an argument. Ends with 1 at the first that fails."""

import json
import sys

from dbt.cli.main import dbtRunner

runner = dbtRunner()
for given in sys.argv[1:]:
    if not runner.invoke(json.loads(given)).success:
        sys.exit(1)
