"""Agents under test: built-in loops, controls, and anybody's own function."""
