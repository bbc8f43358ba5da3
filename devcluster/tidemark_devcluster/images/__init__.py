"""The images of the Dockerfile, made without a registry: for the one-node cluster, and to know their sizes.

host      what this machine's own configuration of pip says, for the time of a build
base      a Python base image of Debian packages, where none is to be pulled
build     buildah: both targets, each as an archive that a node can load
sizes     how large each would be in a registry
command   the command line
"""
