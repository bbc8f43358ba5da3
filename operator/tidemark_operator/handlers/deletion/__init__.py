"""The deletion of objects.

dataflow_deletion     a Dataflow: replicas drop it, readers of its tables get an end message
data_source_deletion  a DataSource: its ingestion stops, readers of its tables get an end message
upstream_release      a DataSource: replicas drop the replication slot that it keeps upstream
table_deletion        with `deletionPolicy: Delete`: replicas delete the tables
tombstones            tables that are still to be deleted when their object goes

kubectl delete ─► others read it: it stays (condition InUse)
               └► nobody does:    stop ─► with Delete: tables go, or a tombstone lists them ─► finalizer goes
"""
