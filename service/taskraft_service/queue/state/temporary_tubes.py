"""Keep replicated operations away from the tasks of temporary tubes.

The log and the store have only the definition of a temporary tube. Its tasks are in a separate
queue in the memory of the leader, so no applied entry may put tasks into it.
"""

from __future__ import annotations

from collections.abc import Iterator

from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.tube import QueueTube
from taskraft_service.queue.entities.tube_options import Durability, TubeOptions
from taskraft_service.queue.state.queue_state import QueueState


def out_of_reach(tube: QueueTube) -> Refusal:
    """Return the refusal of an operation that cannot reach the tasks of a temporary tube."""
    return Refusal(
        Reason.KIND_UNSUITABLE,
        "the tube is temporary: groups, schedules, batches and moves do not reach its contents",
        {"tube": tube.name, "durability": Durability.TEMPORARY.name},
    )


def across(state: QueueState, options: TubeOptions) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a dead-letter tube: both tubes must have the same durability."""
    target = state.tubes.get(options.dead_letter_tube)
    if target is not None and target.options.durability is not options.durability:
        yield "dead_letter_tube", f"names a tube that is {target.options.durability.name}"


def refusal_of_target(state: QueueState, name: str, field: str) -> Refusal | None:
    """Return why a field cannot name a tube that will receive tasks later, or None.

    The tube need not exist yet. If it is created as temporary, the later put is refused.
    """
    tube = state.tubes.get(name)
    if tube is None or not tube.is_temporary:
        return None
    text = "names a temporary tube, which only plain puts reach"
    return Refusal(
        Reason.INVALID_FIELD, f"{field} {text}", {"field": field, "tube": name}, ((field, text),)
    )
