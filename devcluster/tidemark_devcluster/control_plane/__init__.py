"""One local control plane: etcd, kube-apiserver, kube-controller-manager."""
