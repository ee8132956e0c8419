"""Allure: results completed with the details of runs, and the files next to them. Nothing else imports allure."""
