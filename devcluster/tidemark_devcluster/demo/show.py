"""The demo's output while it waits and at the end."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TextIO

from tidemark_devcluster.demo import cluster, flights, services
from tidemark_devcluster.demo.cluster import Cluster
from tidemark_devcluster.demo.home import DemoHome
from tidemark_devcluster.errors import StartFailed
from tidemark_devcluster.programs.progress import ProgressOutput

HYDRATION_SECONDS = 600.0
_POLL_SECONDS = 1.0
FRONTIER_LOOKS = 3
_LOOK_SECONDS = 6.0
_COMMAND_SECONDS = 300.0
_ROWS_SECONDS = 60.0
_GATEWAY_SECONDS = 180.0
_QUERY = "SELECT name, flights, cancelled, late FROM carriers ORDER BY flights DESC LIMIT 5"


def wait_for_gateway(home: DemoHome, progress: ProgressOutput) -> None:
    """Wait until the operator leads and answers: what status says before that is of the operator before.

    Raises StartFailed if the operator ends, or does not answer in time.
    """
    step = progress.step("operator", "takes the Lease and opens its gateway")
    deadline = time.monotonic() + _GATEWAY_SECONDS
    while True:
        services.check_running(home, services.OPERATOR)
        done = _run_tidemark(home, "frontiers")
        if done.returncode == 0:
            return step.done()
        if time.monotonic() > deadline:
            step.failed()
            raise StartFailed(
                f"the operator's gateway does not answer after {_GATEWAY_SECONDS:.0f} s ({done.stderr.strip()}); "
                f"the operator's log: {home.log(services.OPERATOR)}"
            )
        step.tick()
        time.sleep(_POLL_SECONDS)


def wait_until_hydrated(home: DemoHome, api: Cluster, own: frozenset[str], progress: ProgressOutput) -> None:
    """Show each Dataflow of `own` as it becomes hydrated. Other Dataflows are not waited for.

    Raises StartFailed if one of `own` does not hydrate in time.
    """
    step = progress.step("views", "hydrate: the replica starts, reads what there is, and computes it once")
    deadline, done = time.monotonic() + HYDRATION_SECONDS, set[str]()
    while True:
        services.check_running(home, services.OPERATOR)
        states = [state for state in cluster.dataflows(api) if state.name in own]
        new = [s.name for s in states if s.hydrated and s.name not in done]
        done.update(new)
        if new:
            step.done(f", hydrated: {', '.join(sorted(new))}")
        if states and all(s.hydrated for s in states):
            return
        if time.monotonic() > deadline:
            step.failed()
            raise StartFailed(_stuck(api, states, home))
        if new:
            waiting = ", ".join(s.name for s in states if not s.hydrated)
            step = progress.step("views", f"still hydrating: {waiting}")
        step.tick()
        time.sleep(_POLL_SECONDS)


def _stuck(api: Cluster, states: list[cluster.DemoDataflow], home: DemoHome) -> str:
    lines = [f"  {s.name}: {s.reason}" for s in states if not s.hydrated]
    lines += [f"  replica {name}: {state}" for name, state in cluster.replica_states(api).items()]
    why = "\n".join(lines)
    return f"not all views hydrated within {HYDRATION_SECONDS:.0f} s (log: {home.log(services.OPERATOR)})\n{why}"


def show_frontiers(home: DemoHome, api: Cluster, looks: int, out: TextIO) -> None:
    """Print all frontiers, then at `looks` times the views as they run with the clock, then rows."""
    print("\n$ kubectl tidemark frontiers", file=out, flush=True)
    _tidemark(home, "frontiers")
    print("\n$ kubectl get dataflows      # a few times: LAG stays small while the clock runs", file=out, flush=True)
    for _ in range(looks):
        time.sleep(_LOOK_SECONDS)
        print(f"{time.strftime('%H:%M:%S')}\n{api.kubectl('get', 'dataflows')}", file=out, flush=True)
    print(f'$ kubectl tidemark query "{_QUERY}"', file=out, flush=True)
    _tidemark(home, "query", _QUERY, rows=True)


def _tidemark(home: DemoHome, *arguments: str, rows: bool = False) -> None:
    """Run the command line and print what it prints; a busy planner is asked again, and so is a view without `rows`.

    The first month of flights may still be on its way when the views have hydrated.
    """
    deadline = time.monotonic() + _ROWS_SECONDS
    while True:
        done = _run_tidemark(home, *arguments)
        again = "try again" in done.stderr if done.returncode != 0 else rows and "(0 rows" in done.stderr
        if not again or time.monotonic() > deadline:
            break
        time.sleep(_POLL_SECONDS)
    print(done.stdout, end="", flush=True)
    print(done.stderr, end="", file=sys.stderr)
    if done.returncode != 0:
        raise StartFailed(f"`kubectl tidemark {arguments[0]}` failed; the operator's log: {home.log('operator')}")


def _run_tidemark(home: DemoHome, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(home.bin / "kubectl-tidemark"), *arguments, "--gateway-file", str(home.gateway_file)]
    return subprocess.run(command, check=False, timeout=_COMMAND_SECONDS, capture_output=True, text=True)


def say_what_next(home: DemoHome, out: TextIO) -> None:
    arrived = flights.months_arrived(home.incoming)
    rest = "all are here" if arrived == len(flights.MONTHS) else "the next in a few seconds"
    print(
        f"""
It is running, and stays so. The flights of 2013 arrive month by month: {arrived} of 12 so far, {rest}. To look around:

  export KUBECONFIG={home.kubeconfig} PATH={home.bin}:$PATH
  kubectl get dataflows -w
  kubectl tidemark query '{_QUERY}'
  kubectl tidemark query 'SELECT n_name, revenue FROM revenue ORDER BY revenue DESC LIMIT 5'
  kubectl tidemark frontiers
  kubectl get tidemark                # everything of Tidemark's
  make demo-down                      # to end it""",
        file=out,
    )
