"""Commands that judge stored runs, and that compare judges with people."""
