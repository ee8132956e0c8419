"""Pass on what an agent that is a program asks of its own model, so that its requests are limited, counted, recorded.

The program gets base URLs that lead here. Requests in the formats of OpenAI and Anthropic are sent to the provider as
they are, streams included.
"""

from pytest_toolemu.agents.model_gateway.case_gateway import SessionRules, check_base_urls, passed_on

__all__ = ["SessionRules", "check_base_urls", "passed_on"]
