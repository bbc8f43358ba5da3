"""Commands that a controller must send and must not send, and responses that it must accept: docs/protocol.md."""

from __future__ import annotations

import random

import pytest

from tests.controller.harness import EMPTY, INDEX, INPUT, LAG, R1, R2, TERM, VIEW, InstanceHarness, at
from tests.protocol.audit import Audit
from tests.protocol.samples import dataflow
from tidemark_operator.controller.answers.peeks import PeekAnswer
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ReplicaId, ShardId, Time
from tidemark_protocol.messages import commands as c
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.messages.responses import (
    Failure,
    FailureKind,
    Frontiers,
    PeekCanceled,
    PeekError,
    PeekResponse,
    PeekRows,
    ShardFrontiers,
    Status,
)
from tidemark_protocol.plan.lir import MapFilterProject

COMPLETE = c.InitializationComplete()
ROWS = PeekRows(b"rows", 1)


def peek(uuid: str, time: int, id: GlobalId = INDEX) -> c.Peek:
    return c.Peek(uuid, c.IndexTarget(id), Time(time), MapFilterProject(()), Finishing(), ())


class Chaos:
    """Anything that can happen to an instance of six Dataflows and two replicas, each connection under audit."""

    def __init__(self, seed: int) -> None:
        self.chance, self.harness = random.Random(seed), InstanceHarness(upper=500)
        self.audits: dict[tuple[ReplicaId, int], Audit] = {}
        self.installed: dict[str, int] = {}
        self.asked, self.created, self.upper = list[str](), 0, 500

    def happen(self) -> None:
        event = self.chance.choice(
            [self.create, self.drop, self.connect, self.report, self.maintain, self.ask, self.stop]
        )
        event()
        for replica in self.harness.instance.replicas:
            audit = self.audits.setdefault((replica, self.harness.connection(replica)), Audit())
            for command in self.harness.sent(replica):
                audit.take(command)

    def create(self) -> None:
        if len(self.installed) < 6:
            self.created += 1
            name = f"d{self.created}"
            self.harness.shards.register(dataflow(name).sink_exports[0].sink.shard.shard_id, "/v", LAG)  # type: ignore[union-attr]
            as_of = self.upper - self.chance.choice([0, 50])
            self.harness.instance.create(Dataflow(name, dataflow(name, as_of), LAG), TERM)
            self.installed[name] = as_of

    def drop(self) -> None:
        if self.installed:
            name = self.chance.choice(list(self.installed))
            del self.installed[name]
            self.harness.instance.drop(name)

    def connect(self) -> None:
        replica = self.chance.choice([R1, R2])
        self.chance.choice([self.harness.connect, self.harness.instance.disconnect])(replica)

    def report(self) -> None:
        """The report of a dataflow that is there, dropped or not; now and then its end."""
        self.upper += 100
        self.harness.shards.observe(INPUT, at(self.upper), at(0))
        for replica in self.harness.instance.replicas:
            for number in range(max(1, self.created - 8), self.created + 1):
                time = EMPTY if self.chance.random() < 0.5 and f"d{number}" not in self.installed else at(self.upper)
                self.harness.report(replica, time, *dataflow(f"d{number}").export_ids)

    def maintain(self) -> None:
        self.harness.now += 10_000
        self.harness.maintain()

    def ask(self) -> None:
        uuid, number = f"p{len(self.asked)}", self.chance.randint(1, max(1, self.created))
        self.asked.append(uuid)
        self.harness.instance.peek(peek(uuid, self.upper - self.chance.choice([0, 150, 400]), GlobalId(f"d{number}/i")))

    def stop(self) -> None:
        if self.asked:
            self.harness.instance.cancel_peek(self.chance.choice(self.asked))


def test_must_respect_dependencies_between_commands() -> None:
    """Nothing is scheduled, compacted, allowed, or read before it is created, or after it is dropped; stages are kept;
    no since goes back; whatever happens."""
    for seed in range(60):
        chaos = Chaos(seed)
        for _ in range(80):
            chaos.happen()
        assert chaos.created > 1


def test_must_not_ask_for_what_replicas_were_told_to_forget() -> None:
    """An index that was dropped, or compacted, while the question was on its way: answered without them."""
    harness = InstanceHarness(upper=900)
    harness.install(as_of=300)
    harness.connect(R1)
    harness.report(R1, at(500))
    harness.maintain()
    harness.sent(R1)

    (early,) = harness.instance.peek(peek("early", 310))
    harness.instance.drop("ns/d")
    (late,) = harness.instance.peek(peek("late", 450))

    assert isinstance(early, PeekAnswer)
    assert isinstance(late, PeekAnswer)
    assert "from {400} on" in early.result.message  # type: ignore[union-attr]
    assert "was dropped or replaced" in late.result.message  # type: ignore[union-attr]
    assert not any(isinstance(m, c.Peek) for m in harness.sent(R1))


def test_must_end_the_initialization_once_on_each_connection() -> None:
    """After all that there was; what comes later is said without it."""
    harness = InstanceHarness()
    harness.install()
    for _ in range(2):
        harness.connect(R1)
        commands = harness.sent(R1)
        assert commands.count(COMPLETE) == 1
        assert commands[-1] == COMPLETE
    harness.instance.drop("ns/d")
    harness.instance.initialized()

    assert COMPLETE not in harness.sent(R1)


def test_must_allow_writes_to_sinks_that_exist_and_never_take_it_back() -> None:
    """After CreateDataflow, on each connection again; an index needs none."""
    harness = InstanceHarness()
    for _ in range(2):
        harness.connect(R1)
        if not harness.instance.dataflows.owners():
            harness.install()
        commands = harness.sent(R1)
        allowed = [m for m in commands if isinstance(m, c.AllowWrites)]
        assert allowed == [c.AllowWrites(VIEW, TERM)]
        created = c.CreateDataflow(dataflow("d", 300))
        assert commands.index(created) < commands.index(allowed[0])


def test_must_answer_a_peek_whose_index_went_with_the_last_replica_that_was_asked() -> None:
    """No later replica is asked for what it never had; one that was asked may still answer."""
    harness = InstanceHarness(upper=900)
    harness.install(as_of=300)
    harness.connect(R1, R2)
    harness.report(R1, at(500))
    harness.instance.peek(peek("p", 450))
    assert harness.instance.drop("ns/d") == []
    assert harness.instance.disconnect(R1) == []

    notices = harness.instance.disconnect(R2)
    (answer,) = [n for n in notices if isinstance(n, PeekAnswer)]
    assert isinstance(answer.result, PeekError)
    harness.connect(R1)
    assert not any(isinstance(m, c.Peek) for m in harness.sent(R1))


def test_must_ask_the_target_alone_and_fail_with_it() -> None:
    """Another replica is not asked, nor one that joins; nobody waits for a target that is gone, or never came."""
    harness = InstanceHarness(upper=900)
    harness.install(as_of=300)
    harness.connect(R1, R2)
    harness.report(R1, at(500))
    harness.sent(R1), harness.sent(R2)
    assert harness.instance.peek(peek("p", 450), R2) == []
    assert [type(m) for m in harness.sent(R2)] == [c.Peek]
    assert harness.instance.disconnect(R1) == []
    harness.connect(R1)
    assert not any(isinstance(m, c.Peek) for m in harness.sent(R1))

    (failed,) = harness.instance.disconnect(R2)
    (nobody,) = harness.instance.peek(peek("q", 450), R2)

    assert isinstance(failed, PeekAnswer)
    assert isinstance(nobody, PeekAnswer)
    assert "was lost or removed" in failed.result.message  # type: ignore[union-attr]
    assert "not connected" in nobody.result.message  # type: ignore[union-attr]
    index = harness.instance.dataflows.collection(INDEX)
    assert index is not None
    assert index.holds == {}


@pytest.mark.parametrize("answer", [ROWS, PeekError("no"), PeekCanceled()], ids=["rows", "error", "canceled"])
def test_must_take_any_answer_to_a_cancelled_peek(answer: PeekRows | PeekError | PeekCanceled) -> None:
    """A replica may have answered before it heard of it: nothing comes of it, and nothing breaks."""
    harness = InstanceHarness()
    harness.install()
    harness.connect(R1)
    harness.instance.peek(peek("p", 310))
    harness.instance.cancel_peek("p")
    harness.sent(R1)

    assert harness.hear(R1, PeekResponse("p", answer)) == []
    assert harness.hear(R1, PeekResponse("p", answer)) == []
    assert harness.sent(R1) == []


def test_must_take_no_cancellation_for_an_answer() -> None:
    """Nobody cancelled: a replica that says so lies, and another's answer is given."""
    harness = InstanceHarness()
    harness.install()
    harness.connect(R1, R2)
    harness.instance.peek(peek("p", 310))

    assert harness.hear(R1, PeekResponse("p", PeekCanceled())) == []
    assert harness.hear(R2, PeekResponse("p", ROWS)) == [PeekAnswer("p", ROWS)]


def test_must_ignore_responses_about_what_is_gone_or_never_was() -> None:
    """Late reports of a dropped dataflow, an answer to a question nobody asked: no news, no commands, no state."""
    harness = InstanceHarness()
    harness.install()
    harness.connect(R1)
    harness.instance.drop("ns/d")
    harness.report(R1, EMPTY)
    harness.sent(R1)
    late = [
        Frontiers(INDEX, at(900), at(900), at(900)),
        Frontiers(GlobalId("nobody"), EMPTY),
        PeekResponse("nobody's", ROWS),
        Failure(INDEX, FailureKind.STEP, "no"),
        ShardFrontiers(ShardId("nobody's"), at(5), at(0)),
    ]

    assert [harness.hear(R1, response) for response in late] == [[]] * len(late)
    assert harness.sent(R1) == []
    assert harness.instance.dataflows.owners() == []


def test_must_not_believe_frontiers_that_go_back_or_go_on_after_the_end() -> None:
    """Each kind counts apart: another replica's are believed, and the global frontier stays."""
    harness = InstanceHarness()
    harness.install()
    harness.connect(R1, R2)
    harness.hear(R1, Frontiers(INDEX, write=at(450), input=EMPTY))
    index = harness.instance.dataflows.collection(INDEX)
    assert index is not None

    for lie in (
        Frontiers(INDEX, write=at(449)),
        Frontiers(INDEX, input=at(800)),
        Frontiers(INDEX, output=at(299)),
    ):
        harness.hear(R1, lie)
    harness.hear(R2, Frontiers(INDEX, write=at(310)))

    on = index.replicas[R1]
    assert (on.write, on.input, on.output, on.refused_reports) == (at(450), EMPTY, None, 3)
    assert (index.write, index.replicas[R2].write) == (at(450), at(310))


def test_must_keep_a_dropped_collection_until_every_kind_is_empty_everywhere() -> None:
    """On each replica, or that one is gone. Its inputs' holds go with the last report, not before."""
    harness = InstanceHarness()
    harness.install()
    harness.connect(R1, R2)
    harness.instance.drop("ns/d")
    for replica in (R1, R2):
        for id in (INDEX, VIEW):
            for kind in ("write", "input", "output"):
                assert harness.instance.dataflows.owners() == ["ns/d"]
                assert any(shard.holds for shard in harness.shards.all())
                harness.hear(replica, Frontiers(id, **{kind: Frontier.empty()}))

    assert harness.instance.dataflows.owners() == []
    assert not any(shard.holds for shard in harness.shards.all())


def test_must_not_rely_on_statuses() -> None:
    """With all of them, with none, and with false ones, also with a false Failure: the same commands, frontiers and
    answers."""
    outcomes = []
    for told in (
        [],
        [Status(INDEX, "hydration", {"state": "hydrated"})],
        [Failure(INDEX, FailureKind.STEP, "no"), Status(INDEX, "operators", {}), Status(INDEX, "erroring")],
    ):
        harness = InstanceHarness(upper=900)
        harness.connect(R1)
        harness.install(as_of=300)
        harness.instance.peek(peek("p", 310))
        for time in (400, 800):
            for response in told:
                harness.hear(R1, response)
            harness.report(R1, at(time))
            harness.maintain()
        answers = harness.hear(R1, PeekResponse("p", ROWS))
        harness.instance.drop("ns/d")
        gone = harness.report(R1, EMPTY)
        outcomes.append((harness.sent(R1), answers, gone))

    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_must_not_rely_on_statuses_for_others_to_hydrate() -> None:
    """The one in the slot has been refused, and its replica says nothing of it: others wait for ten minutes."""
    harness = InstanceHarness(upper=900)
    harness.instance.hydration_policy.concurrency = 1
    harness.connect(R1)
    harness.install(as_of=300)
    other = dataflow("e", 300)
    harness.shards.register(other.sink_exports[0].sink.shard.shard_id, "/e", LAG)  # type: ignore[union-attr]
    harness.instance.create(Dataflow("ns/e", other, LAG), TERM)
    scheduled = []
    for _ in range(11):
        scheduled.append([command.id for command in harness.sent(R1) if isinstance(command, c.Schedule)])
        harness.maintain()
        harness.now += 60_000
    scheduled.append([command.id for command in harness.sent(R1) if isinstance(command, c.Schedule)])

    assert scheduled == [[INDEX, VIEW], *([[]] * 10), [*other.export_ids]]
