"""Requests in a provider's batches: at half the price, and answered within a day."""
