"""Where the results of a view are written besides its shard: published tables, Kafka, PostgreSQL."""
