"""vLLM servers of the session's own: which are needed, how they are started, watched, measured and stopped."""
