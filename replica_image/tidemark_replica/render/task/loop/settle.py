"""Running a loop inside one task, for bodies that do not need the JVM: a round is a few kernel calls.

loop inputs published by the same task ──> rounds, each over files of its own ──> one file per binding that leaves
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.render.plan.pipeline import Loop
from tidemark_replica.render.task.description import PublishedFiles, StepDescription
from tidemark_replica.render.task.loop.fixpoint import Fixpoint, RunPart
from tidemark_replica.render.task.update_files import UpdatesFile
from tidemark_replica.values.arrow_files import read_batches


def run_loop(
    loop: Loop,
    description: StepDescription,
    folder: Path,
    attempt: int,
    published: Mapping[str, PublishedFiles],
    cache: BatchCache,
    run: RunPart,
) -> tuple[Fixpoint, dict[str, PublishedFiles]]:
    """Run the loop to its end. Publishes what leaves it in `folder`, in files of the attempt."""
    own = folder.absolute() / f"{loop.name}.{attempt}"
    own.mkdir()
    entering = {name: _absolute(published[name], folder) for name in loop.entering if name in published}
    fixpoint = Fixpoint(loop, description, own, cache, run)
    fixpoint.settle(entering)
    left = {name: _gathered(name, found, folder, attempt) for name, found in fixpoint.leaving.items()}
    shutil.rmtree(own, ignore_errors=True)
    return fixpoint, left


def _absolute(published: PublishedFiles, folder: Path) -> PublishedFiles:
    return replace(published, files=tuple(str(folder.absolute() / file) for file in published.files))


def _gathered(name: str, found: PublishedFiles, folder: Path, attempt: int) -> PublishedFiles:
    """Many small files as one."""
    first = next(read_batches(Path(found.files[0])))
    with UpdatesFile(folder, f"{name}.{attempt}.arrow", first.schema.types[:-3]) as out:
        for file in found.files:
            for batch in read_batches(Path(file)):
                out.write(batch)
    return out.published()
