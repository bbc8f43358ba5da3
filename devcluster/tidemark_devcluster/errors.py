"""Errors of the development cluster. Each message is one line that names the object and the remedy."""


class DevClusterError(Exception):
    """The root of this package's errors; `main` prints it as one line and exits with 1."""


class ToolchainMissing(DevClusterError):
    """PATH has no Go that is new enough, and none could be installed from PyPI."""


class BuildFailed(DevClusterError):
    """A program did not compile."""


class DownloadFailed(DevClusterError):
    """A Go module could not be downloaded, or does not match go.sum."""


class AssetsIncomplete(DevClusterError):
    """`KUBEBUILDER_ASSETS` names a folder that lacks a program."""


class NotEnoughRoom(DevClusterError):
    """The machine has too little disk or memory for the requested action."""


class PortTaken(DevClusterError):
    """Another program listens on the requested port."""


class StartFailed(DevClusterError):
    """A process of the control plane ended, or did not become ready in time."""


class StopFailed(DevClusterError):
    """A process of the control plane outlived SIGKILL."""


class StateUnusable(DevClusterError):
    """The state folder is of another version, holds foreign files, or cannot be written."""


class NodeImpossible(DevClusterError):
    """This machine lacks what a node needs: a right, a package, or a feature of its kernel."""


class KernelLacks(NodeImpossible):
    """The kernel lacks a feature: a node needs another kernel, or a module of this one."""


class ImageFailed(DevClusterError):
    """An image could not be built, or could not be loaded into the node."""


class KubectlFailed(DevClusterError):
    """kubectl failed; the message is its error output."""
