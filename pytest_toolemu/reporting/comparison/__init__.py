"""Reports on two sessions, and on where two runs diverge."""
