"""Agents that are programs or services: a command, or an endpoint that a file describes."""
