"""Reports on sessions. Each report is a function of stored runs, and escapes all text where it writes it."""
