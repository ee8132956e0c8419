"""The small project of the plugin's tests."""

from tests.plugin.conftest import alone

__all__ = ["alone"]
