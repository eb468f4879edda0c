"""Rules for single tasks: no task is lost, invented, revived, or taken or removed too early."""

from __future__ import annotations

from collections.abc import Iterator

from tests.drill.history import Operation
from tests.drill.request import Request
from tests.drill.task_history import SECOND_NS, TaskHistories, TaskHistory, Violation


def _listings(histories: TaskHistories) -> dict[str, list[Operation]]:
    """Return the complete listings of each tube; a drained tube counts as an empty listing."""
    found: dict[str, list[Operation]] = {}
    for one in histories.history.of("snapshot", "drained"):
        if one.is_ok and one.answer.get("complete", True):
            found.setdefault(one.value["tube"], []).append(one)
    return found


def lost_tasks(histories: TaskHistories) -> Iterator[Violation]:
    """G1: an acknowledged put stays until a removal or the end of its time to live."""
    listings = _listings(histories)
    for task in histories.tasks.values():
        puts = [put for put in task.puts if put.is_ok]
        if not puts:
            continue
        put_ns = min(put.ended_ns for put in puts)
        gone_ns = min(
            [one.invoked_ns for one in task.removals()]
            + [one.invoked_ns for one in histories.sweeps_of(task.tube) if one.f == "truncate"]
            + [histories.lives_until_ns(task)]
        )
        shown_in = {id(listing) for listing, _ in task.listed}
        absences = [one for one in listings.get(task.tube, ()) if id(one) not in shown_in]
        absences += [one for one in task.peeks if one.is_ok and one.answer.get("state") is None]
        for one in absences:
            if put_ns < one.invoked_ns and one.ended_ns < gone_ns:
                code = "lost-after-take" if task.deliveries else "lost"
                yield Violation("G1", code, f"{task.name}: no {one.f} shows it, nothing removed it")
                break


def invented_tasks(histories: TaskHistories) -> Iterator[Violation]:
    """G2: every observed task was put before, with this content and into this tube."""
    for task in histories.tasks.values():
        uids = task.uids()
        if len(uids) > 1:
            yield Violation("G2", "payload-mismatch", f"{task.name} has contents {sorted(uids)}")
        seen = task.seen()
        for uid in uids if seen else ():
            puts = histories.puts_of_uid.get(uid, [])
            if not puts:
                yield Violation("G2", "phantom", f"{task.name}: nothing put {uid}")
            elif not any(put.may_have_happened for put in puts):
                yield Violation("G2", "failed-put-visible", f"{task.name}: the put of {uid} failed")
            elif all(put.value["tube"] != task.tube for put in puts):
                yield Violation("G2", "wrong-tube", f"{task.name}: {uid} was put elsewhere")
            elif min(ended for _, ended, _ in seen) < min(put.invoked_ns for put in puts):
                yield Violation("G2", "observed-before-put", f"{task.name} was seen before its put")


def resurrected_tasks(histories: TaskHistories) -> Iterator[Violation]:
    """G4: a removed task never returns, and a buried task waits for a kick."""
    for task in histories.tasks.values():
        removed = [one for one in task.removals() if one.is_ok]
        if removed:
            gone_ns = min(one.ended_ns for one in removed)
            for invoked_ns, _, observer in task.seen():
                if invoked_ns > gone_ns:
                    yield Violation("G4", "resurrected", f"{observer} shows {task.name} again")
                    break
        if len([one for one in removed if one.f == "ack"]) > 1:
            yield Violation("G4", "double-ack", f"{task.name} was acknowledged twice")
        yield from _taken_while_buried(histories, task)


def _taken_while_buried(histories: TaskHistories, task: TaskHistory) -> Iterator[Violation]:
    burials = [one for one in task.settlements() + task.burials if one.f == "bury" and one.is_ok]
    for burial in burials:
        for delivery in task.deliveries:
            if delivery.invoked_ns > burial.ended_ns and not any(
                kick.invoked_ns <= delivery.ended_ns and kick.ended_ns >= burial.invoked_ns
                for kick in histories.kicks
                if kick.value["tube"] == task.tube and kick.may_have_happened
            ):
                yield Violation("G4", "buried-taken", f"{task.name} was taken without a kick")
                return


def early_tasks(histories: TaskHistories) -> Iterator[Violation]:
    """G9: no task is taken before its delay has passed."""
    for task in histories.tasks.values():
        puts = [put for put in task.puts if put.may_have_happened]
        if puts and task.deliveries:
            due_ns = min(_due_ns(put) for put in puts) - histories.slack_ns
            if min(one.ended_ns for one in task.deliveries) < due_ns:
                yield Violation("G9", "early-delay", f"{task.name} was taken before its delay")
        for before in task.deliveries:
            delays = [one for one in before.ends({"release"}) if one.is_ok]
            for after in task.deliveries:
                if after.token > before.token and any(
                    after.ended_ns < _due_ns(one) - histories.slack_ns for one in delays
                ):
                    text = f"{task.name} was taken before the delay of its release"
                    yield Violation("G9", "early-delay", text)
        late = histories.config.get("ttl_max_late")
        if late is not None and task.deliveries:
            yield from _served_after_ttl(histories, task, late)


def _due_ns(one: Request) -> float:
    return one.invoked_ns + one.value.get("delay", 0) * SECOND_NS


def _served_after_ttl(
    histories: TaskHistories, task: TaskHistory, late: float
) -> Iterator[Violation]:
    puts = [put for put in task.puts if put.is_ok]
    ttl = puts[0].value.get("ttl", histories.tube(task.tube).get("ttl")) if puts else None
    if ttl is None or any(one.f == "touch" for one in task.settlements()):
        return
    lives = puts[0].value.get("delay", 0) + ttl + late
    lives += sum(one.value.get("delay", 0) for one in task.settlements())
    if max(one.invoked_ns for one in task.deliveries) > puts[0].ended_ns + lives * SECOND_NS:
        yield Violation("G9", "served-after-ttl", f"{task.name} was taken after its time to live")
