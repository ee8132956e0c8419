"""What people read after a session. Each report is a function of stored runs, and escapes all text at its sink."""
