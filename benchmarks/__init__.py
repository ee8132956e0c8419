"""What the program costs, measured. From the root: ``python -m benchmarks.collect``, ``python -m benchmarks.cpu``."""
