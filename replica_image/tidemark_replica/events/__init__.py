"""Events between threads: the queue into the command loop (`mailbox.py`), the queue to a client (`outbox.py`,
`client.py`), and jobs that run on pools and continue on the command loop (`jobs.py`)."""
