"""May this agent be released? Rules on figures, decided from rows alone, so that a decision can be repeated later."""
