"""`tidemark completion`: the script with which a shell completes the command's words."""

from __future__ import annotations

import click

from tidemark_cli.completion import SHELLS, script
from tidemark_cli.options import Command

_EXAMPLES = """
# Complete `tidemark` in this bash, or in every one
source <(tidemark completion bash)
tidemark completion bash > ~/.local/share/bash-completion/completions/tidemark

# The same for zsh and fish
source <(tidemark completion zsh)
tidemark completion fish > ~/.config/fish/completions/tidemark.fish
"""


@click.command(cls=Command, epilog=_EXAMPLES)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    The script completes `tidemark`. kubectl's own completion script completes `kubectl tidemark`: it finds
    kubectl_complete-tidemark, which pip installs beside kubectl-tidemark, and krew does not.
    """
    click.echo(script(ctx.find_root().command, shell), nl=False)
