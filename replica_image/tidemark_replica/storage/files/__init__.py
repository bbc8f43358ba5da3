"""Files in directories as a source: csv, json lines and parquet; each file is read once, whole, or not at all."""
