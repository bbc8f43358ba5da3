// What keeps a pod's namespaces. It needs Go's own library alone.
module tidemark.dev/devcluster/pause

go 1.24.0
