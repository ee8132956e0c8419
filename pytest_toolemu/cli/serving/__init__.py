"""Commands that serve a case to an agent that a person connects."""
