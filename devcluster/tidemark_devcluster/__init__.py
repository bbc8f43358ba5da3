"""The development cluster: a real etcd and kube-apiserver on loopback, for the demo and the tests.

Read in this order:

    main             the command line
    programs/        Go programs, compiled once into a cache outside the checkout
    control_plane/   up, down and status of one control plane: etcd, kube-apiserver, kube-controller-manager
    supervision/     restarting what dies, and the table of `status`
    node/            a one-node cluster in namespaces of its own, in which pods run
    images/          the images of the Dockerfile, built with buildah

The package knows nothing of Tidemark's resources. It never touches a user's own cluster or kubeconfig.
"""
