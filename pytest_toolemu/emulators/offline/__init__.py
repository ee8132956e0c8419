"""Emulate tools without a model: state from earlier calls, and values generated from a seed."""
