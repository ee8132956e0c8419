"""Answer tool calls without executing anything: a model, the offline emulator, and wrappers around them."""
