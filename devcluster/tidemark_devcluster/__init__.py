"""The local control plane: a real etcd and kube-apiserver on loopback, for the demo and the tests.

    recipe       which programs, from which Go modules, with which flags
    toolchain    the Go that compiles them
    build        compiles them once into a cache outside the checkout
    layout       what lies where in a state folder; credentials: the tokens, the key, the kubeconfigs
    commands     the command lines of the three servers
    processes    pid + start time: who is whom, how one starts and ends
    plane        up, down and status of one control plane
    main         the command line

    node/        a real node beside it, in namespaces of its own: pods run
    images/      the images of the Dockerfile, with buildah

Nothing here knows Tidemark's own resources, and a user's own cluster or kubeconfig is never touched.
"""
