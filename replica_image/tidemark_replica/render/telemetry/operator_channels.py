"""The channels of a dataflow: which operator's rows reach which other one, through whatever has no name between them.

    read t ──► filter ──► join ──► Publish x        ReadPublished x ──► reduce        the channels:
    read u ─────────────► join                                                        read t ─► join, read u ─► join,
                                                                                      join ─► reduce

An operator that looks up rows in another one's arrangement has a channel from it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from tidemark_replica.render.plan import pipeline as p
from tidemark_replica.render.plan.fragments import Fragments, LoopFragment
from tidemark_replica.render.plan.jvm_frames import Frame, StageFrame, inputs_of

Place = int
Channel = tuple[Place, Place]
_NONE: frozenset[Place] = frozenset()


def channels(
    fragments: Fragments, place_of: Callable[[p.Pipeline], Place | None], loops: Mapping[str, Place]
) -> frozenset[Channel]:
    """(from, to), as places of operators. `place_of`: of a node, None for one without a name; `loops`: the places of
    recursions that are fragments, by their names."""
    found = _Channels(place_of)
    for _ in range(2):  # a stream may be read before the node that keeps it for several readers is met
        for fragment in fragments.fragments:
            if isinstance(fragment, LoopFragment):
                found.loop(fragment.loop, loops[fragment.loop.name])
            else:
                found.stage(fragment.stage)
    return frozenset(found.channels)


class _Channels:
    """`_written`: the operators whose rows are published or kept under a name."""

    def __init__(self, place_of: Callable[[p.Pipeline], Place | None]) -> None:
        self._place_of = place_of
        self._written: dict[tuple[str, str], frozenset[Place]] = {}
        self.channels: set[Channel] = set()

    def stage(self, stage: StageFrame) -> frozenset[Place]:
        """The operators whose rows the stage's output has."""
        return self._node(stage.tree, stage)

    def loop(self, loop: p.Loop, place: Place) -> None:
        """A recursion: one operator, from what it reads to what it gives."""
        for name in loop.entering:
            self._into(place, self._read("published", name))
        for name in loop.leaving:
            self._write("published", name, frozenset({place}))

    def _node(self, node: p.Pipeline, stage: StageFrame) -> frozenset[Place]:
        below = self._leaf(node, stage).union(*(self._node(each, stage) for each in p.inputs_of(node)))
        place = self._place_of(node)
        if place is not None:
            self._into(place, below)
            below = frozenset({place})
        match node:
            case p.Publish(name):
                self._write("published", name, below)
            case p.Spool(name):
                self._write("spooled", name, below)
            case p.LoopInTask(loop) if place is not None:
                self.loop(loop, place)
            case _:
                pass
        return below

    def _leaf(self, node: p.Pipeline, stage: StageFrame) -> frozenset[Place]:
        """The operators whose rows a node without inputs reads."""
        match node:
            case p.ReadPublished(name) | p.ReadPublishedErrors(name):
                return self._read("published", name)
            case p.ReadSpool(name):
                return self._read("spooled", name)
            case p.JvmInput():
                return _NONE.union(*(self.stage(each) for each in nearest_stages(stage.inputs[node.slot])))
            case _:
                return _NONE

    def _into(self, place: Place, below: frozenset[Place]) -> None:
        self.channels |= {(each, place) for each in below if each != place}

    def _read(self, how: str, name: str) -> frozenset[Place]:
        return self._written.get((how, name), _NONE)

    def _write(self, how: str, name: str, places: frozenset[Place]) -> None:
        self._written[how, name] = self._read(how, name) | places


def nearest_stages(frame: Frame) -> Iterator[StageFrame]:
    """The nearest stages, at the frame or below."""
    if isinstance(frame, StageFrame):
        yield frame
    else:
        for below in inputs_of(frame):
            yield from nearest_stages(below)
