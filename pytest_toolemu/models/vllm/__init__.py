"""vLLM servers that a session starts for itself: which it needs, how they are started, watched, and stopped."""
