"""The door and the engine room: HTTP, sessions, scheduling, metrics and the command line."""

__version__ = "0.1.0"
