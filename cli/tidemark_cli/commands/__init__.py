"""One module per command. `main` imports a module when its command is called."""
