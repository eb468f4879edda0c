"""Parse and show the policies of scenario files.

Options of a tube, besides those in ``scenario.py``:

    on_ack=retain retain=50          also keep, remove
    capacity=3 capacity_bytes=10 buried=2 concurrency=1 rate=10 burst=2 pri=0..255
    attempts=3 backoff=10 factor=300 cap=100 jitter=50 give_up=dead_letter dead=letters again=front
    scope=all policy=keep_deadline   of the time to live
    durability=temporary

A task may have a retry policy too. Changes with a transition: ``new=body new_pri=1 new_ttl=5
new_ttr=5``. Dependencies of a new task: ``after=etl/1,#0 else=run``, tasks by tube and id, items of
the put or batch by number; ``chain`` means the item before it.
"""

from __future__ import annotations

from taskraft_service.queue.entities.new_task import Dependencies, ItemReference, TaskReference
from taskraft_service.queue.entities.retry_policy import Exhausted, Position, RetryPolicy
from taskraft_service.queue.entities.task_state import TaskOutcome
from taskraft_service.queue.entities.task_view import OnDependencyFailure, TaskProgress
from taskraft_service.queue.entities.tube_options import Durability, OnAck, TtlPolicy, TtlScope
from taskraft_service.queue.operations.settlements import Ack, Keep
from taskraft_service.queue.state.content_work import Edited
from taskraft_service.queue.transitions.updating import TaskUpdate

NUMBERS = {
    "pri": "priority",
    "delay": "delay_ms",
    "ttl": "ttl_ms",
    "ttr": "ttr_ms",
    "retain": "retain_ms",
    "capacity": "capacity_tasks",
    "capacity_bytes": "capacity_bytes",
    "buried": "buried_max",
    "concurrency": "concurrency",
    "rate": "rate_per_second",
    "burst": "rate_burst",
    "subqueue_rate": "subqueue_rate_per_second",
    "subqueue_burst": "subqueue_rate_burst",
}
RETRY_NUMBERS = {
    "attempts": "attempts_max",
    "backoff": "backoff_ms",
    "factor": "factor_percent",
    "cap": "backoff_ms_max",
    "jitter": "jitter_percent",
}


CHANGES = {
    "new_pri": "priority",
    "new_delay": "delay_ms",
    "new_ttl": "ttl_ms",
    "new_ttr": "ttr_ms",
}


def replaced(_body, changes):
    """Apply the changes to the content."""
    return Edited(changes, len(changes))


def policies(found):
    """Return the tube options that a line names, as keywords."""
    named = {}
    if ".." in found.get("pri", ""):
        low, high = found.pop("pri").split("..")
        named.update(priority_min=int(low), priority_max=int(high))
    named.update({to: int(found[name]) for name, to in NUMBERS.items() if name in found})
    if "on_ack" in found:
        named["on_ack"] = OnAck[found["on_ack"].upper()]
    if "scope" in found:
        named["ttl_scope"] = TtlScope[found["scope"].upper()]
    if "policy" in found:
        named["ttl_policy"] = TtlPolicy[found["policy"].upper()]
    if "durability" in found:
        named["durability"] = Durability[found["durability"].upper()]
    if "dead" in found:
        named["dead_letter_tube"] = found["dead"]
    if (policy := retry(found)) is not None:
        named["retry"] = policy
    return named


def retry(found):
    """Return the retry policy that a line names, or None."""
    named = {to: int(found[name]) for name, to in RETRY_NUMBERS.items() if name in found}
    if "give_up" in found:
        named["exhausted"] = Exhausted[found["give_up"].upper()]
    if "again" in found:
        named["position"] = Position[found["again"].upper()]
    return RetryPolicy(**named) if named else None


def update(found):
    """Return the changes that a line names, or None."""
    named = {to: int(found[name]) for name, to in CHANGES.items() if name in found}
    if "new" in found:
        named["content"] = found["new"].encode()
    return TaskUpdate(**named) if named else None


def ack(tokens, found):
    """Parse an acknowledgement with its options."""
    return Ack(
        tokens,
        found["result"].encode() if "result" in found else None,
        found.get("result_type", ""),
        Keep[found["keep"].upper()] if "keep" in found else Keep.AS_TUBE,
        int(found["retain"]) if "retain" in found else None,
        update(found),
    )


def progress(found):
    """Return the progress that a line names, or None."""
    return (
        TaskProgress(int(found["progress"]), found.get("note", "")) if "progress" in found else None
    )


def dependencies(found, item):
    """Return the dependencies of an item of a put, or None."""
    named = [reference(text) for text in found.get("after", "").split(",") if text]
    if "chain" in found and item > 0:
        named.append(ItemReference(item - 1))
    on_failure = OnDependencyFailure[found.get("else", "cancel").upper()]
    return Dependencies(tuple(named), on_failure) if named else None


def reference(text):
    """Parse ``tube/id`` or ``#item``."""
    if text.startswith("#"):
        return ItemReference(int(text[1:]))
    tube, _, task_id = text.partition("/")
    return TaskReference(tube, int(task_id))


def shown(extras, instant):
    """Yield the parts of a task's extras to show."""
    if extras.waiting:
        yield "waits for " + " ".join(f"{one.tube}/{one.id}" for one in extras.waiting.open)
    if extras.failure:
        yield f"failure {extras.failure.type}"
    if extras.origin:
        yield f"from {extras.origin.tube}/{extras.origin.task_id}"
    if extras.cancel_requested:
        yield "asked to stop"
    if extras.times_buried:
        yield f"buried {extras.times_buried}"
    if extras.progress:
        yield f"progress {extras.progress.basis_points} {extras.progress.note}".rstrip()
    if extras.outcome is not TaskOutcome.NONE:
        yield f"outcome {extras.outcome.name}"
    if extras.result is not None:
        yield f"result {extras.result.decode()} {extras.result_content_type}".rstrip()
    if extras.retain_until_ms:
        yield f"kept until {instant(extras.retain_until_ms)}"
