"""The replicas of an instance: connections, what is sent to them, what they are not told."""
