"""The files of a location: a local folder, or an S3-compatible object store."""
