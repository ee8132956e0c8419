"""Several sessions, such as the shards of one, made into one."""
