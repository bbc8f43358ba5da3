"""What can go wrong with the control plane. Each message is one line that names the object and the remedy."""


class DevClusterError(Exception):
    """The root of this package's errors; `main` prints it as one line and exits with 1."""


class ToolchainMissing(DevClusterError):
    """No Go new enough on PATH, and none could be had from PyPI."""


class BuildFailed(DevClusterError):
    """A program did not compile."""


class DownloadFailed(DevClusterError):
    """A Go module could not be had, or is not the one that go.sum names."""


class AssetsIncomplete(DevClusterError):
    """`KUBEBUILDER_ASSETS` names a folder that lacks a program."""


class NotEnoughRoom(DevClusterError):
    """Too little disk or memory for what is about to start."""


class PortTaken(DevClusterError):
    """Another program listens on the port that was asked for."""


class StartFailed(DevClusterError):
    """A process of the control plane ended, or did not become ready in time."""


class StopFailed(DevClusterError):
    """A process of the control plane outlived SIGKILL."""


class StateUnusable(DevClusterError):
    """The state folder holds what this version did not write, or cannot be used at all."""


class NodeImpossible(DevClusterError):
    """This machine lacks what a node needs: a right, a package, or a feature of its kernel."""


class KernelLacks(NodeImpossible):
    """No command on this machine mends it: another kernel is needed, or a module of this one."""


class ImageFailed(DevClusterError):
    """An image could not be made, or could not be given to the node."""


class KubectlFailed(DevClusterError):
    """kubectl returned an error; the message is what it said."""
