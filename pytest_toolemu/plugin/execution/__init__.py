"""Run the cases of a session, in this process and in xdist workers."""
