"""Every benchmark runs, on small data, and its last line has its figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidemark_devcluster.programs.cache import BuildCache

pytestmark = pytest.mark.spark
KINDS = ("join", "reduce", "topk", "minmax", "one_group", "distinct")
PLANS = ("aggregation", "three_way", "six_way")
FIGURES = {
    "step": {
        *("state_ratio", "empty_job_ratio", "empty_job_driver_ratio", "spark_recompute_ratio", "duckdb_ratio"),
        *(f"state_ratio_{kind}" for kind in KINDS),
        *(f"empty_job_ratio_{plan}" for plan in PLANS),
        *(f"empty_job_driver_ratio_{plan}" for plan in PLANS),
        *("spark_recompute_ratio_12k", "spark_recompute_cpu_ratio_12k", "duckdb_ratio_12k", "dd_ratio"),
        *("task_driver_ratio_10", "task_driver_ratio_40", "together_ratio_2"),
        *("pathway_10_ratio", "pathway_40_ratio"),
    },
    "hydrate": {"spark_batch_ratio_q3", "spark_batch_ratio_q18", "pathway_ratio", "dd_ratio"},
    "arrange": {"groupby_ratio", "bytes_ratio"},
    "sharing": {
        "state_ratio",
        "step_ratio",
        "state_ratio_q11",
        "state_mib_q11_after",
        "step_ratio_q18",
        "rows_ratio_together",
        "state_ratio_parts",
    },
    "views": {"lag_p99_ticks", "idle_core"},
    "catchup": {"catchup_ratio"},
    "memory": {"driver_growth"},
    "soak": {"rss_growth", "p50_drift", "files_growth"},
    "peek": {"p50_ms", "p99_ms", "peeks_per_s", "spark_sql_ratio"},
    "reconnect": {"reconciled_s", "recomputed"},
    "controller": {"core", "frontier_delay_s"},
    "operator": {"planned_s", "moving_core", "rest_core", "writes_per_s", "requests_per_s", "rss_mb"},
    "profile": {
        *("aggregation_empty_job_ratio", "aggregation_part operator Reduce", "aggregation_part merges"),
        *("aggregation_driver_part worker: order, to the call", "aggregation_driver_part operator Reduce"),
        *("aggregation_tasks_part operator Exchange", "aggregation_tasks_part operator ExchangeInput"),
    },
    "nexmark": {
        *("events_per_s_q17", "events_per_s_q21", "freshness_ms_p50_q17", "freshness_ms_p99_q17"),
        *("spark_events_per_s_q21", "spark_streaming_ratio_q17", "spark_streaming_ratio_q21", "spark_streaming_ratio"),
    },
    "homes": {"homes_ratio", "cold_reads_at_home", "cold_reads_anywhere", "cold_reads_exchanged"},
}
# the others take minutes of a busy machine; `step` takes 40 s of CPU
QUICK = ("controller",)
# CPU time is coarse, a small run may not lag at all, steps beside the driver take no job, and not every one merges
MAY_BE_NONE = ("cpu", "core", "lag", "late", "heap", "jobs", "recomputed", "cold", "writes", "requests", "part merges")
# the engines that must be installed on purpose stay out
OPTIONS = {"step": ["--peers", ""], "hydrate": ["--peers", "", "--queries", "q3,q18"]}


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A cache of the tests' own, with the control plane that is built already: a build takes ten minutes."""
    cache, shared = tmp_path_factory.mktemp("cache"), BuildCache.of(os.environ).root
    if (shared / "control-plane").exists():
        for name in ("control-plane", "lock"):
            (cache / name).symlink_to(shared / name)
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TIDEMARK_CACHE": str(cache)}


@pytest.mark.timeout(1600)
@pytest.mark.parametrize(
    "bench", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in FIGURES]
)
def test_the_last_line_has_every_figure(bench: str, environ: dict[str, str], tmp_path: Path) -> None:
    """Nothing on standard output but one JSON object; a peer that is left out is null, and the reason is said."""
    command = [sys.executable, "-m", f"bench.{bench}", "--json", "--quick"]
    command += OPTIONS.get(bench, [])
    with (tmp_path / "errors").open("w+") as errors:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environ, timeout=1500)
        errors.seek(0)
        assert done.returncode == 0, errors.read()[-5000:]
    (line,) = done.stdout.splitlines()
    printed = json.loads(line)
    assert printed["bench"] == bench
    figures, context = printed["figures"], printed["context"]
    assert figures.keys() >= FIGURES[bench]
    for name, value in figures.items():
        if name.startswith(("pathway", "dd_")):
            assert value is None
        elif "flink" not in name:  # this peer may not be installed
            assert value is not None
            assert value > 0 or any(kind in name for kind in MAY_BE_NONE)
    assert context.get("absent", {}).keys() == ({"pathway", "dd"} if bench in OPTIONS else set())
    assert context["cores"] >= 1
    assert context["load_before"] >= 0
