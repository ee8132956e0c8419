"""Tests of imports of tools that exist."""
