"""Cost estimates before a session, from earlier records or from a rehearsal without any model request."""
