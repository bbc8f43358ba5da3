"""The rendered plan: pipelines of Python calls, frames of the JVM, and the fragments that they form."""
