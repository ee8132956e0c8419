"""Show what a session found: terminal, reports, gates, Allure."""
