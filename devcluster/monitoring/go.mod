// The kinds of the Prometheus operator, which only the tests of the chart need. Written by hand, all of it: nothing is
// compiled of the module, files of it are taken, so `go mod tidy` would find no use for it.
module tidemark.dev/devcluster/monitoring

go 1.24.0

require github.com/prometheus-operator/prometheus-operator v0.85.0
