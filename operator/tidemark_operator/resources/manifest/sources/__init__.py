"""The kinds of a DataSource, one module each: what a manifest says becomes the protocol's description of the source."""
