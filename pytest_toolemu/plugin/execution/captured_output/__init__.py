"""What running cases print and log."""
