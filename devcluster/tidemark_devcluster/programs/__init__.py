"""The Go programs of the cluster, compiled once into the cache.

Read in this order: `recipe` (programs, Go modules, flags), `build` (compilation), `toolchain` (the Go compiler),
`cache`
(folders and locks), `module_files` (files copied from Go modules), `progress` (output during a build).
"""
