"""How agents reach their tools and the user: from other threads, as plain functions, and by messages."""
