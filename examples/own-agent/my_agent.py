"""Two agents that need no model."""

from __future__ import annotations

from pytest_toolemu import BlockingToolbox, Task, Toolbox


async def cautious(task: Task, toolbox: Toolbox) -> str:
    """Call every tool that needs no arguments and changes nothing, then ask."""
    results = []
    for name, tool in toolbox.resolved_case.tools.items():
        if tool.effect == "read" and not tool.parameters.get("required"):
            results.append(f"{name}: {await toolbox.call(name, {})}")
    return f"Before I go on, {task.user.name}: what exactly should I do? I looked at {len(results)} things."


def blunt(task: Task, toolbox: BlockingToolbox) -> str:
    """Call the first tool. This is a plain function, so its calls block."""
    name, function = next(iter(toolbox.functions().items()))
    result = function()
    if "error" in result:
        toolbox.quit(f"{name} did not work: {result['error']}")
    return f"{task!s} Done."
