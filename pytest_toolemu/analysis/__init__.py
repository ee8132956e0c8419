"""Turn stored runs into metrics, decisions, and agreement figures."""
