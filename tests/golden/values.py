"""Values of each dataclass that the codec writes, with no field left at its default; `members.tsv` has their bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tidemark_operator.planning.revision import DataflowRevision, Parent, RowCount
from tidemark_protocol.ids import Digest, GlobalId, LocalId, ShardId, Time
from tidemark_protocol.messages.commands import IndexTarget, InstanceConfig, Peek, ShardTarget
from tidemark_protocol.messages.planning import (
    Catalogue,
    Diagnostic,
    ExportRequest,
    Finishing,
    Planned,
    PlannedExport,
    PlannedOneShot,
    PlannedPeek,
    PlannedTask,
    PlanQueryRequest,
    PlanRequest,
    Refused,
    Relation,
    SharedIndex,
    TaskRequest,
    ViewRequest,
)
from tidemark_protocol.plan.dataflow import (
    BuildDesc,
    ClientSink,
    ContinualTaskSink,
    CopyToSink,
    DataflowDescription,
    IndexExport,
    IndexImport,
    MaterializedViewSink,
    Settings,
    ShardMetadata,
    ShardSink,
    SinkExport,
    SourceImport,
    SubscribeSink,
)
from tidemark_protocol.plan.expr import Call, ColumnRef, Literal
from tidemark_protocol.plan.ingestion import (
    DeltaSource,
    DeltaTable,
    FilesSource,
    FilesTable,
    IngestedTable,
    IngestionDescription,
    IntrospectionSource,
    IntrospectionTable,
    NexmarkSource,
    Option,
    PostgresSource,
    PostgresTable,
    PublicationTable,
    SourceTable,
    TpchSource,
    WrittenSource,
    WrittenTable,
)
from tidemark_protocol.plan.kafka import KafkaSchema, KafkaSource, KafkaTable
from tidemark_protocol.plan.lir import (
    Changes,
    Constant,
    ConstantRow,
    DeltaJoin,
    DeltaPath,
    ErrorValue,
    FlatMap,
    Get,
    Join,
    JoinStage,
    Let,
    LetRec,
    LinearJoin,
    Mfp,
    Negate,
    Plan,
    RecursiveBinding,
    Reduce,
    Threshold,
    TopK,
    TopKPlan,
    Union,
    Window,
)
from tidemark_protocol.plan.map_filter_project import MapFilterProject
from tidemark_protocol.plan.reductions import (
    AccumulableReduce,
    AggregateExpr,
    BasicReduce,
    CollationReduce,
    DistinctReduce,
    HierarchicalReduce,
    OrderKey,
    WindowCall,
    WindowFrame,
)
from tidemark_protocol.plan.refresh import RefreshSchedule
from tidemark_protocol.plan.sinks.kafka import KafkaSink
from tidemark_protocol.plan.sinks.postgres import PostgresSink
from tidemark_protocol.plan.sinks.publish import PublishedView
from tidemark_protocol.types import BIGINT, BOOLEAN, STRING, Column, ColumnType, SqlType

MONEY = SqlType("decimal", 15, 2)
NESTED = SqlType.struct((("a b", SqlType.array(BIGINT)), ("c", STRING)))

COLUMN = Column("größe", BIGINT, False)
COLUMNS = (COLUMN, Column("n", NESTED))
ROW = (ColumnType(BIGINT, False), ColumnType(NESTED))
REF = ColumnRef(1, BIGINT, False)
LITERAL = Literal("7\t'", BIGINT)
CALL = Call(">", (REF, LITERAL), BOOLEAN, False)
ORDER = OrderKey(1, True, True)
SETTINGS = Settings("Europe/Berlin", False)
SHARD = ShardMetadata(ShardId("s1"), "s3://bucket/s1", COLUMNS)
MFP = MapFilterProject(ROW, (REF,), (CALL,), (0, 2), (LITERAL,), (REF,))
GET = Get(GlobalId("s1/a"), ROW, (REF,))
STAGE = JoinStage(1, (REF,), (CALL,), (0,), (0, 1), MFP, (0,))
LINEAR = LinearJoin(1, (STAGE,))
PATH = DeltaPath(1, (STAGE,))
DELTA = DeltaJoin((PATH,), MFP)
AGGREGATE = AggregateExpr("sum", 0, ColumnType(MONEY), True, 2, (ORDER,), (LITERAL,))
ACCUMULABLE = AccumulableReduce((AGGREGATE,))
HIERARCHICAL = HierarchicalReduce((AGGREGATE,), True)
BASIC = BasicReduce((AGGREGATE,))
COLLATION = CollationReduce((ACCUMULABLE, HIERARCHICAL, BASIC), ((0,), (1, 2), ()))
FRAME = WindowFrame("rows", LITERAL, None)
WINDOW_CALL = WindowCall("lag", (0,), ColumnType(BIGINT), FRAME, (LITERAL,), True)
TOP_K = TopKPlan("monotonic_top_k")
ERROR = ErrorValue("DIVIDE_BY_ZERO", "a / b")
CONSTANT_ROW = ConstantRow((LITERAL,), -2)
BINDING = RecursiveBinding(LocalId("l1"), GET, 9, True)
PLANS: tuple[Plan, ...] = (
    Constant((CONSTANT_ROW,), ROW, ERROR),
    GET,
    Let(LocalId("l0"), GET, GET),
    LetRec((BINDING,), GET),
    Mfp(GET, MFP),
    FlatMap(GET, "explode", (REF,), ROW, MFP),
    Join((GET, GET), LINEAR),
    Join((GET, GET), DELTA),
    Reduce(GET, (REF,), (CALL,), COLLATION, MFP),
    Reduce(GET, (REF,), (), DistinctReduce(), MFP),
    TopK(GET, (0,), (ORDER,), LITERAL, 3, TOP_K),
    Window(GET, (0,), (ORDER,), (WINDOW_CALL,)),
    Negate(GET),
    Threshold(GET),
    Union((GET, GET), True),
    Changes(GET),
)
REFRESH = RefreshSchedule(3_600_000, Time(1_000), (Time(5_000), Time(7_000)))
PUBLISHED = PublishedView("s3://bucket/shop/_published/revenue/v", "shop.revenue.v", 60_000, 24)
POSTGRES_SINK = PostgresSink(
    "db.example.com", 5432, "shop", "shop-db", "public", "v", ("n",), "shop.revenue.v", 60_000, "require"
)
KAFKA_SINK = KafkaSink(
    ("kafka:9092",), "v", ("n",), "shop.revenue.v", "v-progress", "debezium", "avro", "kafka", 6, 3, 60_000
)
SINKS: tuple[ShardSink | ClientSink, ...] = (
    MaterializedViewSink(SHARD, REFRESH),
    SubscribeSink(COLUMNS, False, Time(99)),
    CopyToSink(COLUMNS, "s3://bucket/copies/c", "csv"),
    ContinualTaskSink(SHARD, GlobalId("s1"), GlobalId("own")),
)
SOURCE_IMPORT = SourceImport(GlobalId("s1/a"), SHARD, (1, 0), True)
INDEX_IMPORT = IndexImport(GlobalId("i1"), GlobalId("o1"), (REF,), ROW, True)
BUILT = tuple(BuildDesc(GlobalId(f"d/{n}"), plan) for n, plan in enumerate(PLANS))
INDEX_EXPORT = IndexExport(GlobalId("d/i"), GlobalId("d/0"), (1,), COLUMNS)
SINK_EXPORTS = tuple(SinkExport(GlobalId(f"d/s{n}"), GlobalId("d/0"), sink) for n, sink in enumerate(SINKS))
DESCRIPTION = DataflowDescription(
    "revenue",
    (SOURCE_IMPORT,),
    (INDEX_IMPORT,),
    BUILT,
    (INDEX_EXPORT,),
    SINK_EXPORTS,
    Time(1_700_000_000_000),
    Time(1_800_000_000_000),
    SETTINGS,
    2,
)
PLANNED_TASK = PlannedTask(GlobalId("s1"), GlobalId("own"))
PLANNED_EXPORT = PlannedExport("v", "materializedView", GlobalId("d/0"), COLUMNS, (1,), True, True, PLANNED_TASK)
PARENT = Parent("DataSource", "shop")
REVISION = DataflowRevision(DESCRIPTION, (PLANNED_EXPORT,), (PARENT,), Digest("ab12"), 3, "sha256:0", (ShardId("s1"),))
ROW_COUNT = RowCount(GlobalId("s1"), 1024)
SHARED_INDEX = SharedIndex(GlobalId("i1"), GlobalId("o1"), (0, 1))
RELATION = Relation("shop", "orders", GlobalId("s1"), COLUMNS, SHARD, ((0,), (1,)), True, True, (0,), (SHARED_INDEX,))
CATALOGUE = Catalogue((RELATION,))
TASK_REQUEST = TaskRequest("shop.orders", "old", COLUMNS)
EXPORT_REQUEST = ExportRequest("i", "index", "v", ("a", "b"), TASK_REQUEST)
VIEW_REQUEST = ViewRequest("v", "SELECT *\nFROM shop.orders")
PLANNED = Planned(
    (SOURCE_IMPORT,), BUILT[:1], (PLANNED_EXPORT,), (GlobalId("s1"),), "Get s1", SETTINGS, (INDEX_IMPORT,)
)
FINISHING = Finishing((ORDER,), 10, 5, 1)
DIAGNOSTIC = Diagnostic("SYNTAX", "no such word", "v", 2, 7, "FRM", ("shop", "orders"))
FILES_TABLE = FilesTable("orders", "csv", "/in", "*.csv", COLUMNS, (Option("sep", ";"),), "deadLetter", 7)
FILES = FilesSource((FILES_TABLE,))
TPCH = TpchSource("0.01", 5, 42)
LAKE_TABLE = DeltaTable("orders", "s3://lake/orders", ("größe", "n"), COLUMNS, "resnapshot")
LAKE = DeltaSource((LAKE_TABLE,))
POSTGRES_TABLE = PostgresTable("orders", "public", "Orders", ("größe", "n"), COLUMNS)
POSTGRES = PostgresSource(
    "db.shop", 5433, "shop", "orders-db", "tidemark", (POSTGRES_TABLE,), "require", "resnapshot", 1 << 20
)
TOPIC_TABLE = KafkaTable(
    "orders",
    "shop.orders",
    "json",
    COLUMNS,
    (Option("at", "timestamp"),),
    "offsets",
    ((0, 5),),
    7,
    "deadLetter",
    "skip",
)
TOPICS = KafkaSource(("kafka:9092",), (TOPIC_TABLE,), "kafka", "shop", 1000)
WRITTEN_TABLE = WrittenTable("orders", COLUMNS, ("größe",), True, (Option("n", "/a/b"),), "ignore")
WRITTEN = WrittenSource((WRITTEN_TABLE,), 1 << 20)
RELATION_TABLE = IntrospectionTable("frontiers", COLUMNS)
SOURCE_TABLE = SourceTable("orders", COLUMNS, ((0,),), True)
INGESTED = IngestedTable(GlobalId("s1/a"), SOURCE_TABLE, SHARD)
INGESTIONS = tuple(
    IngestionDescription(GlobalId("s1"), "shop", source, 500, ShardId("s1/remap"), "s3://bucket/remap", (INGESTED,))
    for source in (FILES, TPCH)
)
EDITED = replace(INGESTIONS[0], removed=("gone",))
TARGETS = (IndexTarget(GlobalId("d/i")), ShardTarget(GlobalId("s1"), SHARD))
PEEKS = tuple(Peek("u-1", target, Time(77), MFP, FINISHING, COLUMNS, ((LITERAL, LITERAL),)) for target in TARGETS)

MEMBERS: tuple[Any, ...] = (
    COLUMN,
    *ROW,
    REF,
    LITERAL,
    CALL,
    ORDER,
    SETTINGS,
    SHARD,
    MFP,
    STAGE,
    LINEAR,
    PATH,
    DELTA,
    AGGREGATE,
    ACCUMULABLE,
    HIERARCHICAL,
    BASIC,
    DistinctReduce(),
    COLLATION,
    FRAME,
    WINDOW_CALL,
    TOP_K,
    ERROR,
    CONSTANT_ROW,
    BINDING,
    *PLANS,
    REFRESH,
    *SINKS,
    SOURCE_IMPORT,
    INDEX_IMPORT,
    BUILT[0],
    INDEX_EXPORT,
    SINK_EXPORTS[0],
    DESCRIPTION,
    PLANNED_TASK,
    PLANNED_EXPORT,
    PARENT,
    REVISION,
    SHARED_INDEX,
    RELATION,
    CATALOGUE,
    TASK_REQUEST,
    EXPORT_REQUEST,
    VIEW_REQUEST,
    PlanRequest("d", (VIEW_REQUEST,), (EXPORT_REQUEST,), CATALOGUE, "u/", "ansi", SETTINGS),
    PlanQueryRequest("SELECT 1", CATALOGUE, "q/", "ansi", SETTINGS),
    PLANNED,
    FINISHING,
    DIAGNOSTIC,
    Refused((DIAGNOSTIC,)),
    PlannedPeek(GlobalId("s1"), MFP, FINISHING, COLUMNS, ((LITERAL,),)),
    PlannedOneShot(PLANNED, FINISHING, COLUMNS),
    FILES_TABLE.options[0],
    FILES_TABLE,
    FILES,
    TPCH,
    SOURCE_TABLE,
    INGESTED,
    *INGESTIONS,
    InstanceConfig("prod", "s3://bucket"),
    *TARGETS,
    *PEEKS,
    replace(PEEKS[0], skip_errors=True),
    FilesTable("orders", "csv", "/in", append_only=True),
    LAKE_TABLE,
    LAKE,
    FilesTable("orders", "json", "/in", compression="gzip"),
    POSTGRES_TABLE,
    POSTGRES,
    TOPIC_TABLE,
    TOPICS,
    WRITTEN_TABLE,
    WRITTEN,
    EDITED,
    FilesTable("orders", "csv", "s3://bucket/in", order="name"),
    PUBLISHED,
    MaterializedViewSink(SHARD, None, PUBLISHED),
    replace(TOPIC_TABLE, envelope="debezium", key_format="json", key_columns=(Column("id", BIGINT),)),
    FilesSource((FILES_TABLE,), "lake-keys", "https://s3.lake"),
    DeltaSource((LAKE_TABLE,), "lake-keys", "https://s3.lake"),
    FilesTable("orders", "csv", "/in", primary_key=("id", "line")),
    DeltaTable("orders", "s3://lake/orders", primary_key=("id", "line")),
    KafkaSchema('"int"', "schemas", "order.avsc", "orders-value", 3, "shop.Order"),
    replace(TOPIC_TABLE, columns=(), format="avro", schema=KafkaSchema(subject="orders-value"), framed=True),
    replace(TOPICS, registry="https://registry:8081", registry_secret="registry"),
    replace(SOURCE_TABLE, schema='"int"'),
    POSTGRES_SINK,
    MaterializedViewSink(SHARD, None, None, POSTGRES_SINK),
    KAFKA_SINK,
    MaterializedViewSink(SHARD, None, None, None, KAFKA_SINK),
    replace(PUBLISHED, empty_on_error=True),
    replace(PUBLISHED, change_data_feed=True),
    replace(PUBLISHED, partition_by=("day", "größe"), file_bytes=8 << 20),
    replace(KAFKA_SINK, registry="https://registry:8081", registry_secret="registry"),
    replace(TOPIC_TABLE, envelope="upsert", key_format="avro", key_schema=KafkaSchema(subject="k"), key_framed=True),
    replace(SOURCE_TABLE, key_schema='"int"'),
    replace(TOPICS, transactions="shop.transaction"),
    NexmarkSource(1000, 42),
    replace(PEEKS[0], trace_context="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    replace(WRITTEN_TABLE, added=("n",)),
    ROW_COUNT,
    replace(REVISION, row_counts=(ROW_COUNT,)),
    replace(RELATION, rows=1024),
    replace(REVISION, row_counts=(ROW_COUNT,), replan="2026-11-28T05:55:00Z"),
    MaterializedViewSink(SHARD, REFRESH, refresh_policy="full"),
    RELATION_TABLE,
    IntrospectionSource((RELATION_TABLE,)),
    replace(PUBLISHED, location="s3://lake/revenue", chosen=True),
    replace(POSTGRES_TABLE, name="orders.2", successor=True),
    FilesTable("orders.2", "json", "/in", columns=COLUMNS, added=("n",)),
    replace(INGESTED, bound_as="orders@s2"),
    KafkaSchema(key="order.avsc", config_map="schemas"),
    replace(TOPIC_TABLE, name="orders.2", added=("n",)),
    replace(POSTGRES, all_tables=True),
    PublicationTable("public", "Orders", ("n",), ("größe (column größe is generated)",), "ReplicaIdentity: none"),
    replace(PUBLISHED, iceberg="sales.revenue"),
    KafkaTable("orders.2", "shop.orders", "avro", (), schema=KafkaSchema(subject="orders-value"), successor=True),
    KafkaTable("orders", "shop.public.orders", "avro", (), marked_in_avro=True),
    replace(PUBLISHED, partition_by=("price",), exact_texts=True),
)
"""The order is that of the lines of `members.tsv`."""
