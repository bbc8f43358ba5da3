"""A real node on this machine: pods run, as one tree of processes in namespaces of its own.

    host                          │ pid, mount and network namespace of one process, `init`
                                  │
    tidemark-devcluster node up ──┼──► init ─┬─ etcd, kube-apiserver, containerd
    kubectl ──── veth 10.213.N ───┼──►       └─ controller manager, scheduler, kube-proxy, kubelet ──► pods
                                  │   /run: a tmpfs   /var: an overlay   both end with the namespace

SIGKILL of `init` ends every process, mount, interface and pod, for all hang on its namespaces. What remains are
the state folder and the (empty) cgroups; `down` removes these too.

needs       what the machine must have, said before anything is begun
binaries    the programs            place       what lies where, outside and inside
settings    configuration files     servers     command lines
link        the veth                cgroups     where pods are accounted
credentials who may speak to the API server
isolation   the mounts              init        the first process: starts the servers, and starts them again
archive     an image of one static program, without a container engine
cluster     up, down, status        command     the command line
"""
