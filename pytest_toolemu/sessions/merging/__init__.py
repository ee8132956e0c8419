"""Merges shards, and sessions of several machines."""
