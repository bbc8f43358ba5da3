"""The copy sink: what a collection holds at one time, as files."""
