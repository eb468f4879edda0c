"""Tubes and replicated settings of the naive queue."""

from __future__ import annotations

from dataclasses import fields, replace

from taskraft_service.queue.entities.refusal import CountResult, Reason
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.tube_options import TubeOptions, TubeView
from taskraft_service.queue.entities.tube_profiles import PROFILES, defaults_of
from taskraft_service.queue.operations.kick_bury_delete import ReleaseAll
from taskraft_service.queue.operations.settings import Configure, SettingsResult
from taskraft_service.queue.operations.tubes import CreateTube, DropTube, TruncateTube, TubeResult
from taskraft_service.queue.operations.update_tube import UpdateTube
from taskraft_service.queue.state.replicated_settings import ReplicatedSettings
from tests.service.queue.model.counting import Counts
from tests.service.queue.model.subqueues import PLAIN_KINDS

LENIENT = "tarantool"
"""The profile that ignores unsupported options, and refuses to touch in tubes without a TTR."""
TIMED = ("higher_first", "priority", "delay_ms", "ttl_ms", "ttr_ms", "ttl_scope", "ttl_policy")
TIMED += ("priority_min", "priority_max")
SUBQUEUES = ("subqueue_concurrency", "subqueue_weights")
SUBQUEUES += ("subqueue_rate_per_second", "subqueue_rate_burst")


class NaiveTubes:
    """Operations on the list of tubes."""

    def do_createtube(self, command: CreateTube):
        existing = self.tube(command.name)
        if existing:
            if command.if_not_exists:
                return TubeResult(existing["view"], True)
            return Reason.TUBE_EXISTS
        self.numbers += 1
        view = TubeView(
            command.name,
            command.kind,
            command.options,
            self.now,
            command.profile,
            command.driver,
            command.driver_version,
        )
        tube = {"name": command.name, "number": self.numbers, "view": view, "next": 1, "back": 0}
        tube["keys"] = {}
        tube["counts"] = Counts()
        tube["memory"] = b""
        tube.update(front=0, time=0, turns={}, bucket=None, rate_due=None, rates={}, share=0)
        rules = PROFILES[command.profile]
        tube["defaults"] = defaults_of(rules, command.kind)
        self.tubes.append(tube)
        return TubeResult(view)

    def clear(self, tube):
        tasks = sorted(self.of(tube, *State), key=lambda task: task["id"])
        for task in tasks:
            self.remove(task)
        self.ruins += tasks
        return len(tasks)

    def do_droptube(self, command: DropTube):
        tube = self.tube(command.name)
        if not tube:
            return Reason.TUBE_NOT_FOUND
        if self.of(tube, State.TAKEN) and not command.force:
            return Reason.TUBE_BUSY
        self.tubes.remove(tube)
        return CountResult(self.clear(tube))

    def do_truncatetube(self, command: TruncateTube):
        tube = self.tube(command.name)
        if not tube:
            return Reason.TUBE_NOT_FOUND
        self.count_truncated(tube)
        count = self.clear(tube)
        self.numbers += 1
        place = next(place for place, one in enumerate(self.tubes) if one is tube)
        emptied = {"number": self.numbers, "keys": {}, "memory": b"", "time": 0, "turns": {}}
        emptied.update(front=0, back=0)
        self.tubes[place] = {**tube, **emptied}
        return CountResult(count)

    def do_releaseall(self, command: ReleaseAll):
        tube = self.tube(command.name)
        if not tube:
            return Reason.TUBE_NOT_FOUND
        taken = len(self.of(tube, State.TAKEN))
        self.go_on({"tube": tube, "last": self.token}, max(self.steps, 0))
        return CountResult(taken)

    def do_updatetube(self, command: UpdateTube):
        tube = self.tube(command.name)
        if not tube:
            return Reason.TUBE_NOT_FOUND
        view, plain = tube["view"], TubeOptions()
        changes = {name: getattr(command.options, name) for name in command.names}
        changes |= {name: getattr(tube["defaults"], name) for name in command.resets}
        if view.profile == LENIENT and "ttr_ms" in command.resets:
            changes["ttr_ms"] = changes.get("ttl_ms", view.options.ttl_ms)
        options = self.suitable_options(tube, replace(view.options, **changes))
        fixed = options.higher_first != view.options.higher_first
        if view.kind in PLAIN_KINDS and any(
            getattr(options, name) != getattr(plain, name) for name in TIMED
        ):
            fixed = True
        if fixed or not options.priority_min <= options.priority <= options.priority_max:
            return Reason.INVALID_FIELD
        if options.rate_burst and not options.rate_per_second:
            return Reason.INVALID_FIELD
        if options.subqueue_rate_burst and not options.subqueue_rate_per_second:
            return Reason.INVALID_FIELD
        if options.subqueue_rate_per_second and not self.has_subqueues(tube):
            return Reason.INVALID_FIELD
        if options.ttl_scope is not view.options.ttl_scope and self.of(tube, *State):
            return Reason.TUBE_BUSY
        self.change_options(tube, replace(view, options=options))
        return TubeResult(tube["view"], True)

    def do_configure(self, command: Configure):
        for field in fields(ReplicatedSettings):
            wish = getattr(command.settings, field.name)
            if wish is not None:
                self.settings = replace(self.settings, **{field.name: wish})
        if command.settings.session_ttr_ms is not None:
            for session in self.sessions:
                if session["default_ttr"] is not None:
                    session["ttr"] = self.session_ttr(session["default_ttr"])
        return SettingsResult(self.settings)

    # ------------------------------------------------------------------------------------ profiles

    def is_lenient(self, tube):
        return tube["view"].profile == LENIENT

    def suitable_options(self, tube, options):
        """Return the options of a tube that the tube does not ignore."""
        ignored = ()
        if self.is_lenient(tube):
            ignored += TIMED if tube["view"].kind in PLAIN_KINDS else ()
            ignored += () if self.has_subqueues(tube) else SUBQUEUES
        return replace(options, **{name: getattr(TubeOptions(), name) for name in ignored})

    def suitable(self, tube, new):
        """Return a task without the options that its tube ignores."""
        if not self.is_lenient(tube):
            return new
        if tube["view"].kind in PLAIN_KINDS:
            new = replace(
                new, priority=None, delay_ms=None, ttl_ms=None, ttr_ms=None, visible_at_ms=None
            )
        return new if self.has_subqueues(tube) else replace(new, subqueue="")

    # ------------------------------------------------------------------------------------- weights

    def weights(self, tubes, command):
        """Return the weights of a take; empty if all weights are without effect."""
        if len(tubes) < 2 or not command.weights:
            return []
        named = dict(reversed(list(zip(command.tubes, command.weights, strict=True))))
        return [named[tube["name"]] for tube in tubes]

    def passes(self, tubes):
        """Return the passes of tubes; none is far behind the tubes that offer tasks."""
        furthest = max((tube["share"] for tube in tubes if self.offers(tube)), default=0)
        return [max(tube["share"], furthest - 2 * 10**6) for tube in tubes]
