"""The Spark session of the replica, and the pods of its executors."""
