"""What requests cost, and what a session may still spend."""
