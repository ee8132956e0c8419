"""Read and write files: whole or not at all, of bounded size, and only by their owner."""
