"""The playground: a person watches a case step by step, or plays the agent, the emulator, or the user. No HTTP here."""
