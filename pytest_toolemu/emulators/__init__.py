"""Answer tool calls without executing anything: a model, an offline world, and wrappers around either."""
