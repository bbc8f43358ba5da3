"""One local control plane: etcd, kube-apiserver, kube-controller-manager.

Read in this order: `control_plane` (up, down, status), `start` (one run of `up`), `layout` (the state folder),
`credentials` (tokens, key, kubeconfigs), `commands` (command lines of the servers), `processes` (identity, start and
end
of a process), `api` (readiness), `kubectl`.
"""
