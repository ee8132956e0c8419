"""Store, read, resume, and merge what sessions leave on disk."""
