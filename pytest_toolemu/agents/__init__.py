"""Agents under test: built-in loops, control agents, and custom agents."""
