"""A local Kubernetes control plane (etcd, kube-apiserver, kube-controller-manager) for demo and tests."""
