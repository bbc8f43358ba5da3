"""The data files of a shard: written, read, pruned and consolidated."""
