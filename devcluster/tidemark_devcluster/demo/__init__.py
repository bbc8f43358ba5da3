"""`make demo`: the whole system on one machine, with real data, in one folder.

    .tidemark/
      kubeconfig, gateway.json      how to reach it
      bin/                          kubectl, kubectl-tidemark, tidemark ...: for PATH
      control-plane/                etcd, kube-apiserver, kube-controller-manager
      operator/                     the operator's state: replicas, the planner
      data/incoming, data/shards    files of sources, and tables
      log/, pids/                   of the operator, the feeder and the supervisor

Everything is idempotent: a second run adopts running processes and starts missing ones.
"""
