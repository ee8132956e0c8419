"""Commands that import toolkits, cases, and runs from elsewhere."""
