"""The replica process put together: scratch, watchdog, start and end."""
