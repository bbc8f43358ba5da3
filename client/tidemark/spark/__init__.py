"""Spark's `format("tidemark")`: rows as of one time, and a stream of changes, each exactly once.

    from tidemark.spark import register

    register(spark)
    spark.read.format("tidemark").option("namespace", "team-a").load("delays")
    spark.readStream.format("tidemark").option("readChangeFeed", True).load("delays")

module          what it does
source          the data source: options, schema
rows            one read: SELECT as of one time, as Arrow
change_feed     a stream: one subscribe for each micro-batch
columns         columns as Spark's types; they are compared before the first row
gateway_retry   calls that outlast a restart of the gateway
options         options of a read

It needs pyspark 4.3 on the driver and on executors, which the extra `client` does not bring.
"""

from tidemark.spark.source import TidemarkDataSource, register

__all__ = ["TidemarkDataSource", "register"]
