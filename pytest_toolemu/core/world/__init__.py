"""Executes the operations that toolkits declare on the rows of a case, in SQLite databases in memory."""
