"""Show the results of a session: terminal, reports, gates, Allure."""
