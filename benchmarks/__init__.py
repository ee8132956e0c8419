"""Measure the time, memory and tokens that the program needs. Run from the root: ``python -m benchmarks.collect``."""
