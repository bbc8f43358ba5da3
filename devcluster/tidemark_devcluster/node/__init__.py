"""A real node on this machine: pods run, as one tree of processes in namespaces of its own.

    host                          │ pid, mount and network namespace of one process, `init`
                                  │
    tidemark-devcluster node up ──┼──► init ─┬─ etcd, kube-apiserver, containerd
    kubectl ──── veth 10.213.N ───┼──►       └─ controller manager, scheduler, kube-proxy, kubelet ──► pods
                                  │   /run: a tmpfs   /var: an overlay   both end with the namespace

SIGKILL of `init` ends every process, mount, interface and pod, because all depend on its namespaces. The state
folder and the empty cgroups remain; `down` removes these too.

Read in this order:

cluster             up, down, status                start               one run of `up`
init                the first process of the node   isolation           its mounts
servers, settings   command lines, configuration    node_layout         files and addresses
credentials         tokens and certificates         veth, cgroups       network and accounting on the host
process_tree        the node's processes            host_requirements   checks of the machine
binaries, archive   programs; an image of one static program            command   the command line
"""
