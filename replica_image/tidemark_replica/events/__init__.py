"""The way into the command loop and out of it: clients, the mailbox, and jobs off its thread."""
