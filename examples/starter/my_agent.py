"""The agent under test: any function of a task and a toolbox that returns its final answer."""

from pytest_toolemu import Task, Toolbox


async def answer(task: Task, toolbox: Toolbox) -> str:
    """Cancel the first booking. This is a mistake, so that the first run shows a failure: replace it by your agent.

    ``toolbox.openai_tools()``, ``toolbox.anthropic_tools()``, and ``toolbox.functions()`` give the tools to a model.
    """
    found = await toolbox.call("StudioBook_ListBookings", {})
    first = next(booking for booking in found["bookings"] if booking["status"] == "booked")
    await toolbox.call("StudioBook_CancelBooking", {"booking_id": first["booking_id"]})
    return f"Done, {task.user.name}: the rehearsal in the {first['room']} is canceled."
