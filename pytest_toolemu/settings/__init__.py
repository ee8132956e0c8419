"""The options of the plugin: their table, how their values are found, and the names of models in them."""

from pytest_toolemu.settings.model_names import *  # noqa: F403
from pytest_toolemu.settings.option import *  # noqa: F403
from pytest_toolemu.settings.option_table import *  # noqa: F403
from pytest_toolemu.settings.resolution import *  # noqa: F403
