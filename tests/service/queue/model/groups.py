"""Groups of the naive queue; members are found by a search of all tasks."""

from __future__ import annotations

from collections import Counter

from taskraft_service.queue.entities.group import GroupState, GroupView
from taskraft_service.queue.entities.life_cycle import EventKind
from taskraft_service.queue.entities.refusal import Reason
from taskraft_service.queue.entities.task_state import State, TaskOutcome
from taskraft_service.queue.operations.groups import (
    CancelGroup,
    CreateGroup,
    GroupResult,
    SetEndTask,
    StartGroup,
)
from taskraft_service.queue.operations.put import Put
from tests.service.queue.model.counting import FINISHED

OPEN = (State.READY, State.DELAYED, State.TAKEN, State.HELD)
PROCESSED, FAILED, CANCELLED = "processed", "failed", "cancelled"
FATES = {
    TaskOutcome.PROCESSED: PROCESSED,
    TaskOutcome.DELETED: CANCELLED,
    TaskOutcome.DEPENDENCY_FAILED: CANCELLED,
}


class NaiveGroups:
    """Groups in a list; ``gone`` counts the removed members, by the way in which they ended."""

    def group(self, name):
        return next((group for group in self.groups if group["name"] == name), None)

    def do_creategroup(self, command: CreateGroup):
        if self.group(command.name):
            return Reason.GROUP_EXISTS
        full = len(self.groups) >= self.limits.groups_max
        if full and not any(group["ended"] for group in self.groups):
            return Reason.LIMIT_REACHED
        for following in (command.end_task, command.abort_task):
            if following and (wrong := self.unfit_stored(following.tube, following.spec)):
                return wrong
        if full:
            self.groups.remove(min(self.groups, key=self.ended_first))
        self.group_numbers += 1
        group = {"name": command.name, "number": self.group_numbers, "command": command}
        group.update(state=GroupState.HELD, created=self.now, ended=0, last=0, refusal=None)
        group.update(gone=Counter(), revoke=False, sweeping=False, cursor=(0, 0))
        self.groups.append(group)
        return GroupResult(self.group_view(group))

    def ended_first(self, group):
        return (group["ended"] or self.now + 1, group["number"])

    def group_view(self, group):
        command, fates = group["command"], self.fates(group)
        return GroupView(
            group["name"],
            group["state"],
            fates["open"],
            fates[PROCESSED],
            fates[FAILED],
            fates[CANCELLED],
            command.end_task,
            command.abort_task,
            command.only_if_processed,
            group["created"],
            group["ended"],
            group["last"],
            group["refusal"],
        )

    def fates(self, group):
        """Count the members of a group by state, and removed members by their end."""
        fates = Counter(group["gone"])
        if not group["ended"]:
            fates.update(self.fate(task["state"]) for task in self.members(group))
        return fates

    def fate(self, state):
        if state in OPEN:
            return "open"
        return PROCESSED if state in FINISHED else FAILED

    def members(self, group):
        """Return the members of a group, including those in tubes that are being cleaned up."""
        return [task for task in (*self.tasks, *self.ruins) if task["group"] is group]

    def unfit_to_join(self, name):
        """Return why a task cannot join a group, or None."""
        group = self.group(name)
        if not name or (group and group["state"] in (GroupState.HELD, GroupState.STARTED)):
            return None
        return Reason.WRONG_STATE if group else Reason.GROUP_NOT_FOUND

    def group_holds(self, task):
        group = task["group"]
        return bool(group and not group["ended"] and group["state"] is not GroupState.STARTED)

    def leave_group(self, task, kind, outcome):
        """Count a removed member, unless it is in another tube now."""
        group = task["group"]
        if group and not group["ended"] and not (kind is EventKind.MOVE and not outcome):
            kept = task["state"] in FINISHED
            group["gone"][PROCESSED if kept else FATES.get(outcome, FAILED)] += 1

    def arrived(self, task):
        """Let a running cancellation scan the new tube of a moved member again."""
        group, place = task["group"], self.place(task)
        if group and group["sweeping"] and group["state"] is GroupState.CANCELLED:
            group["cursor"] = min(group["cursor"], (place[0], place[1] - 1))

    def place(self, task):
        return task["tube"]["number"], task["id"]

    def do_setendtask(self, command: SetEndTask):
        group = self.group(command.name)
        if not group:
            return Reason.GROUP_NOT_FOUND
        if group["state"] not in (GroupState.HELD, GroupState.STARTED):
            return Reason.WRONG_STATE
        for following in (command.end_task, command.abort_task):
            if following and (wrong := self.unfit_stored(following.tube, following.spec)):
                return wrong
        group["command"] = command
        return GroupResult(self.group_view(group))

    # ---------------------------------------------------------------------------- work in steps

    def do_startgroup(self, command: StartGroup):
        group = self.group(command.name)
        if not group:
            return Reason.GROUP_NOT_FOUND
        if group["state"] is GroupState.HELD:
            group["state"] = GroupState.STARTED
            self.sweep(group)
        elif group["state"] is not GroupState.STARTED:
            return Reason.WRONG_STATE
        return GroupResult(self.group_view(group))

    def do_cancelgroup(self, command: CancelGroup):
        group = self.group(command.name)
        if not group:
            return Reason.GROUP_NOT_FOUND
        if group["state"] is GroupState.ENDED:
            return Reason.WRONG_STATE
        again = command.revoke and not group["ended"]
        if group["state"] is not GroupState.CANCELLED or again:
            group.update(state=GroupState.CANCELLED, revoke=command.revoke)
            self.sweep(group)
        return GroupResult(self.group_view(group))

    def sweep(self, group):
        group.update(sweeping=True, cursor=(0, 0))
        self.step(group, max(self.steps, 0))
        self.settle_groups()

    def sweep_groups(self, room):
        """Do one step of the oldest running start or cancellation."""
        sweeping = [group for group in self.groups if group["sweeping"]]
        if sweeping:
            self.step(min(sweeping, key=lambda group: group["number"]), room)
            self.settle_groups()

    def step(self, group, most):
        members = [task for task in self.members(group) if task["state"] in OPEN]
        members = [task for task in members if self.place(task) > group["cursor"]]
        members.sort(key=self.place)
        for task in members[:most]:
            group["cursor"] = self.place(task)
            if not any(task is other for other in self.tasks):
                continue
            if group["state"] is GroupState.STARTED:
                if task["state"] is State.HELD:
                    self.let_go(task, EventKind.GROUP_START)
            elif task["state"] is State.TAKEN and not group["revoke"]:
                self.ask_to_stop(task)
            else:
                self.move(task, EventKind.DELETE, State.GONE)
        self.steps -= min(len(members), most)
        group["sweeping"] = len(members) > most

    def settle_groups(self):
        """End the started groups without open members."""
        while ended := [group for group in self.groups if self.is_over(group)]:
            self.end_group(min(ended, key=lambda group: group["number"]))

    def is_over(self, group):
        waits = group["ended"] or group["sweeping"] or group["state"] is GroupState.HELD
        return not waits and not self.fates(group)["open"]

    def end_group(self, group):
        fates, command = self.fates(group), group["command"]
        ill = command.only_if_processed and (fates[FAILED] or fates[CANCELLED])
        aborts = group["state"] is GroupState.CANCELLED or ill
        group.update(gone=fates, ended=self.now)
        if group["state"] is GroupState.STARTED:
            group["state"] = GroupState.ENDED
        following = command.abort_task if aborts else command.end_task
        if following:
            task = self.new_task(following.spec)
            result = self.do_put(Put(following.tube, [task], atomic=True), owed=True)
            if isinstance(result, Reason):
                group["refusal"] = result
            else:
                group["last"] = result.ids[0]

    def forget_groups(self):
        for _ in range(self.limits.records_forgotten_max):
            ended = [group for group in self.groups if group["ended"]]
            first = min(ended, key=self.ended_first, default=None)
            if not first or first["ended"] + self.limits.group_retention_ms > self.now:
                return
            self.groups.remove(first)
