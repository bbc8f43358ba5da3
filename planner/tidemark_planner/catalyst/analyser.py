"""Spark's parser and analyser. Nothing else of Spark is used: no job ever reads data.

    text ──parsePlan──► unresolved plan ──analyser──► analysed plan ──rules──► JSON, also of subqueries in expressions

The session is small (one local thread, a bounded heap), in ANSI mode and UTC. Relations are leaves without rows
(LogicalRDD over an empty RDD) that carry true types and nullability. Commands are never run, files never read.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaObject, is_instance_of
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidemark_planner.catalyst.json_tree import CatalystNode, parse_tree
from tidemark_planner.catalyst.lru import LruSet
from tidemark_planner.catalyst.spark_errors import diagnose, diagnose_internal
from tidemark_planner.catalyst.spark_types import spark_field, text_type, type_of
from tidemark_planner.errors import CatalystFailed, Refusal, refuse, unsupported
from tidemark_protocol.types import Column, SqlType

HEAP = "1g"
_OPTIONS = "spark.driver.extraJavaOptions"
_JVM = {
    "spark.master": "local[1]",
    "spark.app.name": "tidemark-planner",
    "spark.ui.enabled": "false",
    "spark.driver.memory": HEAP,
    _OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError -Xss4m"
    " -XX:MaxMetaspaceSize=512m -Duser.timezone=UTC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.catalogImplementation": "in-memory",
    # ${env:...} in a text stays text. The setting is the JVM's, since Spark's parser may run without an active session.
    "spark.sql.variable.substitute": "false",
    "spark.log.level": "OFF",
}
_SESSION = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.variable.substitute": "false",
}
_RULES = (
    "analysis.EliminateSubqueryAliases",
    "optimizer.ReplaceExpressions",
    "optimizer.EliminateDistinct",
    "optimizer.ReplaceDistinctWithAggregate",
)
# These rules turn correlated scalar subqueries and LATERAL into joins, and pull up the conditions of other subqueries.
_DECORRELATION = (
    "optimizer.OptimizeOneRowRelationSubquery",
    "optimizer.PullupCorrelatedPredicates",
    "optimizer.RewriteCorrelatedScalarSubquery",
    "optimizer.RewriteLateralSubquery",
)
_MAX_PASSES = 20
_MAX_RELATIONS = 256
_MAX_PROVED = 16_384
_TREE_NODE = "org.apache.spark.sql.catalyst.trees.TreeNode"
_SEQUENCE, _OPTION, _PAIR = "scala.collection.Seq", "scala.Option", "scala.Tuple2"
_SUBQUERIES = ("ScalarSubquery", "Exists", "ListQuery")


def _jvm_in(scratch: Path) -> dict[str, str]:
    options = f'{_JVM[_OPTIONS]} -Djava.io.tmpdir="{scratch}"'
    return {**_JVM, "spark.local.dir": str(scratch), _OPTIONS: options}


@dataclass(frozen=True)
class AnalysedQuery:
    """`tree`: the analysed tree. `subqueries`: the trees of the subqueries in its expressions, by id. `plans`: the JVM
    plans of all these trees.
    """

    tree: CatalystNode
    subqueries: Mapping[int, CatalystNode]
    plans: tuple[Any, ...]


class Catalyst:
    """One Spark session, which plans one query at a time. `proven_expressions`: see expressions/round_trip.py."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._session = spark._jsparkSession
        self._jvm = spark._jvm
        self._state = self._session.sessionState()
        self._parser = self._state.sqlParser()
        # Each part of a class name costs a call to the JVM, so classes are looked up once.
        sql = self._jvm.org.apache.spark.sql
        self._rules = self._rule_objects(_RULES)
        self._decorrelation = self._rule_objects(_DECORRELATION)
        self._skip_commands = sql.execution.CommandExecutionMode.SKIP()
        patterns = sql.catalyst.trees.TreePattern
        self._has_plan = patterns.PLAN_EXPRESSION()
        self._choosing = (patterns.LIMIT(), patterns.OFFSET(), patterns.WINDOW())
        self._pull_out_groupings = sql.catalyst.optimizer.PullOutGroupingExpressions
        self._inline_ctes = sql.catalyst.optimizer.InlineCTE(True, False, False)
        self._decorrelate = sql.catalyst.optimizer.DecorrelateInnerQuery
        self._data_type, self._sessions = sql.types.DataType, sql.classic.SparkSession
        self._gateway = spark.sparkContext._gateway
        self._one_row = sql.catalyst.plans.logical.OneRowRelation()
        self._any_class = self._jvm.scala.reflect.ClassTag.AnyRef()
        self._option_of = self._jvm.scala.Option.apply
        self._leaves: set[str] = set()
        self._empty_relations = lru_cache(_MAX_RELATIONS)(self._empty_relation)
        self.proven_expressions = LruSet(_MAX_PROVED)

    @staticmethod
    def start(scratch: Path | None = None) -> Catalyst:
        """Start the JVM (seconds) and analyse a query once, so that later requests find all classes loaded.

        `scratch`: the folder for Spark's temporary files, which a killed JVM leaves behind. None: a JVM is already
        running.
        """
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # Spark reads it before any other setting
        builder = SparkSession.builder
        for key, value in (_JVM if scratch is None else _jvm_in(scratch)).items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate().newSession()
        for key, value in _SESSION.items():
            spark.conf.set(key, value)
        spark.sparkContext.setLogLevel("OFF")
        # pyspark logs the SQL, the columns and a stack trace of every statement that analysis refuses
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
        started = Catalyst(spark)
        started.analyse("SELECT x, count(*) AS n FROM VALUES (1) AS v(x) WHERE x > 0 GROUP BY x")
        return started

    @property
    def jvm(self) -> Any:
        return self._jvm

    def stop(self) -> None:
        self._spark.stop()

    def parse(self, sql: str) -> Any:
        """The unresolved plan; raises Refusal where the text is not SQL."""
        return self._raise_refusals(lambda: self._parser.parsePlan(sql))

    def parse_columns(self, text: str) -> tuple[Column, ...]:
        """The columns of a list as in CREATE TABLE (`a int, b string NOT NULL`); raises Refusal."""
        schema = json.loads(self._raise_refusals(lambda: self._parser.parseTableSchema(text)).json())
        return tuple(Column(f["name"], type_of(f["type"]), f["nullable"]) for f in schema["fields"])

    def declare(self, name: str, columns: Sequence[Column]) -> None:
        """Make `name` a relation of these columns until `drop_relations`."""
        frame = self._empty_relations(name, tuple(columns))
        self._raise_refusals(lambda: frame.createOrReplaceTempView(quoted(name)))
        self._leaves.add(name)

    def drop_relations(self) -> None:
        """Drop all declared relations."""
        catalogue = self._state.catalog()
        while self._leaves:
            catalogue.dropTempView(self._leaves.pop())

    def _empty_relation(self, name: str, columns: tuple[Column, ...]) -> Any:
        """A relation without rows. Each name has its own, since two relations must not share column ids."""
        schema = json.dumps({"type": "struct", "fields": [spark_field(c.name, c.type, c.nullable) for c in columns]})
        rows = self._spark.sparkContext._jsc.emptyRDD()
        return self._raise_refusals(lambda: self._session.createDataFrame(rows, self._data_type.fromJson(schema)))

    def analyse(self, sql: str) -> AnalysedQuery:
        """The analysed query after the rules; raises Refusal where the text does not resolve or type."""
        # Spark prints literals in the time zone of the thread's active session.
        self._sessions.setActiveSession(self._session)
        plan = self._raise_refusals(lambda: self._apply_rules(self._execution(sql).analyzed()))
        plans, trees = [plan], {}
        for number, subquery in self._raise_refusals(lambda: list(self._subqueries(plan))):
            plans.append(subquery)
            trees[number] = _tree(self._without_subqueries(subquery))
        return AnalysedQuery(_tree(self._without_subqueries(plan)), trees, tuple(plans))

    def _rule_objects(self, rules: Sequence[str]) -> list[Any]:
        catalyst = self._jvm.org.apache.spark.sql.catalyst
        return [getattr(getattr(catalyst, r.split(".")[0]), r.split(".")[1]) for r in rules]

    def _apply_rules(self, plan: Any) -> Any:
        """The plan after the rules, applied until they change nothing."""
        for _ in range(_MAX_PASSES):
            before = plan
            for rule in self._rules:
                plan = rule.apply(plan)
            if self._has_subquery(plan) and not self._has_only_generators(plan):
                plan = self._decorrelated(plan)
            if plan.fastEquals(before):
                break
        return plan

    def _decorrelated(self, plan: Any) -> Any:
        """The plan after the rules of _DECORRELATION, which do not know common table expressions inside a correlated
        subquery: these are written out. Two copies of one that keeps some of several rows could keep different ones.
        """
        if self._groups_by_subquery(plan):
            plan = self._pull_out_groupings.apply(plan)
        try:
            for rule in self._decorrelation:
                plan = rule.apply(plan)
            return plan
        except PySparkException as error:
            if "WithCTE" not in str(error):
                raise
        if any(plan.containsPattern(pattern) for pattern in self._choosing):
            unsupported(
                "WITH inside a correlated subquery, in a query with LIMIT, OFFSET or a window function",
                "write the WITH at the beginning of the query, or a subquery in FROM in its place",
                "WITH",
            )
        return self._decorrelated(self._inline_ctes.apply(plan))

    def _groups_by_subquery(self, plan: Any) -> bool:
        groups = plan.getClass().getSimpleName() == "Aggregate"
        if groups and any(map(self._has_subquery, _elements(plan.groupingExpressions()))):
            return True
        return any(self._has_subquery(c) and self._groups_by_subquery(c) for c in _elements(plan.children()))

    def _has_subquery(self, tree: Any) -> bool:
        return bool(tree.containsPattern(self._has_plan))

    def _has_only_generators(self, plan: Any) -> bool:
        """Whether all subqueries are LATERAL over table functions alone: these need no decorrelation."""
        if not self._has_subquery(plan):
            return True
        if plan.getClass().getSimpleName() == "LateralJoin":
            leaves = _elements(plan.right().plan().collectLeaves())
            if any(leaf.getClass().getSimpleName() != "OneRowRelation" for leaf in leaves):
                return False
        elif any(map(self._has_subquery, _elements(plan.expressions()))):
            return False
        return all(map(self._has_only_generators, _elements(plan.children())))

    def _subqueries(self, plan: Any) -> Iterator[tuple[int, Any]]:
        """The subqueries in the plan's expressions, recursively: (id, plan after the rules)."""
        if not self._has_subquery(plan):
            return
        for child in _elements(plan.children()):
            yield from self._subqueries(child)
        for expression in _elements(plan.expressions()):
            for found in self._subqueries_in(expression):
                inner = self._apply_rules(self._with_outer_rows(plan, found))
                yield found.exprId().id(), inner
                yield from self._subqueries(inner)

    def _subqueries_in(self, expression: Any) -> Iterator[Any]:
        if not self._has_subquery(expression):
            return
        if expression.getClass().getSimpleName() in _SUBQUERIES:
            yield expression
        for child in _elements(expression.children()):
            yield from self._subqueries_in(child)

    def _without_subqueries(self, tree: Any) -> Any:
        """The plan or expression with one empty row in the place of each subquery's plan.

        Subqueries have trees of their own. Within the outer plan they are before the rules, where Spark prints the
        arguments of an expression beside its replacement, which holds them too: twice for each depth of nesting.
        """
        if not self._has_subquery(tree):
            return tree
        if tree.getClass().getSimpleName() in _SUBQUERIES:
            return tree.withNewPlan(self._one_row)
        fields = self._replaced(tree.productIterator().toIndexedSeq())
        return tree.makeCopy(fields.toArray(self._any_class))

    def _replaced(self, fields: Any) -> Any:
        """The Scala sequence, `_without_subqueries` in each plan and expression that it holds at any depth.

        The sequence stays in the JVM, as a number would come back from Python as one of another type.
        """
        for at, field in enumerate(_elements(fields)):
            if not isinstance(field, JavaObject):
                continue
            if self._is(field, _TREE_NODE):
                fields = fields.updated(at, self._without_subqueries(field))
            elif self._is(field, _SEQUENCE):
                fields = fields.updated(at, self._replaced(field))
            elif self._is(field, _OPTION) and field.isDefined() and self._is(field.get(), _TREE_NODE):
                fields = fields.updated(at, self._option_of(self._without_subqueries(field.get())))
            elif self._is(field, _PAIR) and self._is(field._1(), _TREE_NODE):  # the branches of a CASE
                condition, value = self._without_subqueries(field._1()), self._without_subqueries(field._2())
                fields = fields.updated(at, self._jvm.scala.Tuple2(condition, value))
        return fields

    def _is(self, found: Any, kind: str) -> bool:
        return bool(is_instance_of(self._gateway, found, kind))

    def _with_outer_rows(self, outer: Any, subquery: Any) -> Any:
        """The subquery's plan. Where it needs rows of the outer query, they become an input of it."""
        plan = subquery.plan()
        if subquery.children().isEmpty():
            return plan
        inputs = list(_elements(outer.children()))
        read = [e.references() for e in _elements(subquery.outerAttrs())]
        rows = next((i for i in inputs if all(r.subsetOf(i.outputSet()) for r in read)), None)
        if rows is None:
            return plan
        return self._decorrelate.rewriteDomainJoins(rows, plan, subquery.joinCond())

    def inline_rows(
        self, analysed: AnalysedQuery, first_attribute: int, types: Sequence[SqlType]
    ) -> list[tuple[Any, ...]]:
        """The rows of the inline table (VALUES) whose first attribute has this id.

        Each value is the text that Spark casts it to: binary in hex, arrays and structs as lists of texts.
        """
        leaf = self._inline_table(analysed.plans, first_attribute)
        dataset = self._jvm.org.apache.spark.sql.classic.Dataset.ofRows(self._session, leaf)
        frame = DataFrame(dataset, self._spark).toDF(*(f"v{i}" for i in range(len(types))))
        texts = (f"hex(v{i})" if t.name == "binary" else f"CAST(v{i} AS {text_type(t)})" for i, t in enumerate(types))
        return [tuple(row) for row in frame.selectExpr(*texts).collect()]

    def constant(self, text: str) -> str | None:
        """The value of a text that reads nothing and cannot fail."""
        found = self._spark.sql(f"SELECT {text} AS v").first()
        return None if found is None else found["v"]

    def _inline_table(self, plans: Sequence[Any], first_attribute: int) -> Any:
        for leaf in (leaf for plan in plans for leaf in _elements(plan.collectLeaves())):
            if leaf.getClass().getSimpleName() == "LocalRelation":
                output = leaf.output()
                if output.nonEmpty() and output.apply(0).exprId().id() == first_attribute:
                    return leaf
        raise CatalystFailed("an inline table of the analysed plan is not among its leaves")

    def _execution(self, sql: str) -> Any:
        parsed = self.parse(sql)

        def analysed() -> Any:
            execution = self._state.executePlan(parsed, self._skip_commands)
            try:
                execution.assertAnalyzed()
            except Py4JJavaError as error:  # only Spark's rules run here: a failure of our rules is no refusal
                if (diagnostic := diagnose_internal(error.java_exception.toString())) is not None:
                    raise Refusal(diagnostic) from None
                raise
            return execution

        return self._raise_refusals(analysed)

    def _raise_refusals(self, act: Any) -> Any:
        try:
            return act()
        except PySparkException as error:
            if "Unsupported natural join type" in str(error):  # Spark's parser raises a bare exception here
                refuse(
                    "UNSUPPORTED",
                    "NATURAL SEMI JOIN and NATURAL ANTI JOIN are not supported: name the columns with USING or ON",
                )
            raise Refusal(diagnose(error)) from None
        except Py4JJavaError as error:
            thrown = error.java_exception.toString()
            if "StackOverflowError" in thrown:
                refuse("TOO_LARGE", "the query is nested too deeply to be analysed: split it into several views")
            raise CatalystFailed(thrown) from error


def _tree(plan: Any) -> CatalystNode:
    """The plan's nodes. Spark prints `projections` of some Expand nodes as null: these are printed one by one."""
    nodes = json.loads(plan.toJSON())
    printed = [node for node in nodes if node["class"].endswith(".Expand")]
    if any(node["projections"] is None for node in printed):
        for node, expand in zip(printed, _expands(plan), strict=True):
            rows = map(_elements, _elements(expand.projections()))
            node["projections"] = [[json.loads(expression.toJSON()) for expression in row] for row in rows]
    return parse_tree(nodes)


def _expands(plan: Any) -> Iterator[Any]:
    """The plan's Expand nodes, parents first."""
    if plan.getClass().getSimpleName() == "Expand":
        yield plan
    for child in _elements(plan.children()):
        yield from _expands(child)


def _elements(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala sequence."""
    return (sequence.apply(at) for at in range(sequence.size()))


def quoted(name: str) -> str:
    """The name as an SQL identifier."""
    return "`" + name.replace("`", "``") + "`"
