"""Turn files and settings into pytest items."""
