"""Imports from real servers and interfaces."""
