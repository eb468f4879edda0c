"""What the naive queue does with tasks that nobody settles."""

from __future__ import annotations

from service.queue.commands import (
    Bury,
    CountResult,
    Delete,
    Kick,
    Reason,
    State,
    TubeKind,
)
from service.queue.life_cycle import EventKind
from tests.service.queue.naive_sessions import NEVER, later, longer


class NaiveCirculation:
    """Kicks, burials and deletions."""

    def chosen(self, command, states, act, ignored=()):
        tube = self.tube(command.tube)
        if not tube:
            return Reason.TUBE_NOT_FOUND
        count, refused = 0, []
        for item, task_id in enumerate(command.ids):
            task = self.find(tube, task_id)
            if not task:
                refused.append((item, Reason.TASK_NOT_FOUND))
            elif task["state"] in states:
                act(task)
                count += 1
            elif task["state"] not in ignored:
                refused.append((item, Reason.WRONG_STATE))
        return CountResult(count, refused)

    def do_kick(self, command: Kick):
        tube = self.tube(command.tube)
        if tube and command.delay_ms > 0 and tube["view"].kind is TubeKind.FIFO:
            return Reason.INVALID_FIELD

        def kick(task):
            delayed = command.delay_ms > 0
            task["ttl"] = longer(task["ttl"], command.delay_ms)
            task["expire_at"] = later(task["expire_at"], command.delay_ms)
            self.move(task, EventKind.KICK, State.DELAYED if delayed else State.READY)
            task["visible_at"] = later(self.now, command.delay_ms) if delayed else NEVER

        if tube and not command.ids:
            buried = self.of(tube, State.BURIED)
            buried.sort(key=lambda task: (task["rank"], task["id"]))
            for task in buried[: command.count]:
                kick(task)
            return CountResult(min(len(buried), command.count))
        return self.chosen(command, (State.BURIED,), kick)

    def do_bury(self, command: Bury):
        def bury(task):
            task["failure"] = command.failure or task["failure"]
            task["times_buried"] += 1
            reason = command.failure.type if command.failure else ""
            self.move(task, EventKind.BURY, State.BURIED, reason)

        return self.chosen(command, (State.READY, State.DELAYED), bury, (State.BURIED,))

    def do_delete(self, command: Delete):
        def delete(task):
            self.move(task, EventKind.DELETE, State.GONE)

        return self.chosen(command, tuple(State), delete)
