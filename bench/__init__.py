"""The benchmarks: each module prints one JSON object as its last line (`python -m bench.<name> --json`)."""

import os

# Spark's JVM is started by a fork whose child runs a little Python before it becomes java. gRPC, if it is there, takes
# itself apart in that child, and now and then the child dies of it. Nothing here forks to go on using gRPC.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
