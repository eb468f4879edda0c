"""Schedules of the naive queue."""

from __future__ import annotations

from copy import deepcopy

from taskraft_service.queue.entities.life_cycle import EventKind
from taskraft_service.queue.entities.refusal import CountResult, Reason
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.schedules import (
    CreateSchedule,
    DeleteSchedule,
    RunSchedule,
    ScheduleResult,
    UpdateSchedule,
)
from taskraft_service.queue.state.schedule_registry import Overlap, ScheduleView
from tests.service.queue.model.groups import OPEN


class NaiveSchedules:
    """Schedules in a list; each remembers the task of its last put."""

    def schedule(self, name):
        return next((one for one in self.schedules if one["name"] == name), None)

    def schedule_view(self, one):
        return ScheduleView(
            one["name"],
            one["options"],
            one["version"],
            one["since"],
            one["done"],
            one["next"],
            one["last_slot"],
            one["last_id"],
            one["left_out"],
            one["refusal"],
        )

    def do_createschedule(self, command: CreateSchedule):
        if self.schedule(command.name):
            return Reason.SCHEDULE_EXISTS
        if wrong := self.unfit_stored(command.options.tube, command.options.spec):
            return wrong
        one = {"name": command.name, "options": command.options, "next": command.next_ms}
        one.update(version=1, since=self.wall, done=self.wall, left_out=0, refusal=None)
        one.update(last=None, last_slot=0, last_id=0)
        self.schedules.append(one)
        return ScheduleResult(self.schedule_view(one))

    def do_updateschedule(self, command: UpdateSchedule):
        one = self.schedule(command.name)
        if not one:
            return Reason.SCHEDULE_NOT_FOUND
        if wrong := self.unfit_stored(command.options.tube, command.options.spec):
            return wrong
        before = one["options"]
        one.update(options=command.options, version=one["version"] + 1)
        if before.pattern != command.options.pattern:
            one.update(since=self.wall, done=self.wall, next=command.next_ms)
        elif before.paused and not command.options.paused:
            one["since"] = self.wall
        return ScheduleResult(self.schedule_view(one))

    def do_deleteschedule(self, command: DeleteSchedule):
        one = self.schedule(command.name)
        if not one:
            return Reason.SCHEDULE_NOT_FOUND
        self.schedules.remove(one)
        return CountResult(1)

    def do_runschedule(self, command: RunSchedule):
        one = self.schedule(command.name)
        if not one:
            return Reason.SCHEDULE_NOT_FOUND
        if one["version"] != command.version or command.until_ms <= one["done"]:
            return CountResult(0)
        count = 0
        for slot in command.slots:
            if one["done"] < slot.at_ms <= command.until_ms:
                one["done"] = slot.at_ms
                count += self.run(one, slot)
        one.update(done=command.until_ms, next=command.next_ms)
        return CountResult(count)

    def run(self, one, slot):
        options = one["options"]
        before = self.last_of(one)
        if before and options.overlap is Overlap.SKIP:
            one["left_out"] += 1
            return False
        put = Put(options.tube, [self.new_task(options.spec + slot.mark)], atomic=True)
        if before and options.overlap is Overlap.CANCEL_BEFORE:
            result = deepcopy(self).put_instead(one["name"], put)
            if not isinstance(result, Reason):
                result = self.put_instead(one["name"], put)
        else:
            result = self.do_put(put)
        if isinstance(result, Reason):
            one.update(left_out=one["left_out"] + 1, refusal=result)
            return False
        tube = self.tube(options.tube)
        one.update(refusal=None, last_slot=slot.at_ms, last_id=result.ids[0])
        one["last"] = self.find(tube, result.ids[0])
        return True

    def put_instead(self, name, put):
        """Remove the last task of a schedule and put another task; return the result.

        The caller tries this on a copy first.
        """
        held = {tube["number"]: self.held_by(tube) for tube in self.tubes}
        self.move(self.last_of(self.schedule(name)), EventKind.DELETE, State.GONE)
        result = self.do_one(put, [])
        tube = self.tube(put.tube)
        if not isinstance(result, Reason) and self.has_outgrown(tube, held[tube["number"]]):
            return Reason.TUBE_FULL
        return result

    def moved(self, task, copy):
        """Let schedules follow their last task to another tube."""
        for one in self.schedules:
            if one["last"] is task:
                one["last"] = copy

    def last_of(self, one):
        """Return the last task of a schedule if it is still open."""
        last = one["last"]
        there = last and any(task is last for task in self.tasks)
        return last if there and last["state"] in OPEN else None
