"""Turns recorded conversations of an agent, such as a production incident, into toolkits and cases."""
