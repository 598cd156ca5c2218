"""Decisions that follow each other: episodes in, a policy that also knows when to stop, and what the log says of it."""
