"""Tell the tubes whose contents are not part of the replicated state.

Of a temporary tube the log and the store have the definition only. What is in it is in a queue of
its own, in the memory of the leader, so nothing that is applied here may bring tasks into it.
"""

from __future__ import annotations

from collections.abc import Iterator

from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.tube import QueueTube
from taskraft_service.queue.entities.tube_options import Durability, TubeOptions
from taskraft_service.queue.state.queue_state import QueueState


def out_of_reach(tube: QueueTube) -> Refusal:
    """Say that what is done through the log does not reach the contents of a temporary tube."""
    return Refusal(
        Reason.KIND_UNSUITABLE,
        "the tube is temporary: groups, schedules, batches and moves do not reach its contents",
        {"tube": tube.name, "durability": Durability.TEMPORARY.name},
    )


def across(ledger: QueueState, options: TubeOptions) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the dead-letter tube of a tube: tasks do not change sides."""
    target = ledger.tubes.get(options.dead_letter_tube)
    if target is not None and target.options.durability is not options.durability:
        yield "dead_letter_tube", f"names a tube that is {target.options.durability.name}"


def refusal_of_target(ledger: QueueState, name: str, field: str) -> Refusal | None:
    """Return why a field may not name a tube into which tasks shall come later, or None.

    The tube need not exist yet; should it be temporary then, what comes is refused.
    """
    tube = ledger.tubes.get(name)
    if tube is None or not tube.is_temporary:
        return None
    text = "names a temporary tube, which only plain puts reach"
    return Refusal(
        Reason.INVALID_FIELD, f"{field} {text}", {"field": field, "tube": name}, ((field, text),)
    )
