"""The Delta log of a shard: its entries, and each way to commit to it."""
