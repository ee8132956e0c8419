"""What the program costs, measured: ``python -m benchmarks.collect`` and ``python -m benchmarks.cpu`` (from the root)."""
