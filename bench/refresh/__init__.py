"""Views of policies incremental and auto over the same ticks."""
