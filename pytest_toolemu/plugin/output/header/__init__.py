"""The header that a session prints before its first case."""
