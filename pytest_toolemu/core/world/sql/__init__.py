"""Databases in memory, and the SQL that toolkits and cases may use in them."""
