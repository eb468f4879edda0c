"""Sessions of the naive queue."""

from __future__ import annotations

from taskraft_service.queue.entities.instants import FOREVER_MS
from taskraft_service.queue.entities.life_cycle import EventKind
from taskraft_service.queue.entities.refusal import CountResult, Reason
from taskraft_service.queue.entities.session import SessionView
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.operations.leadership import Startup, StartupResult
from taskraft_service.queue.operations.sessions import (
    AttachSession,
    CloseSession,
    KeepResult,
    KeepSessions,
    OpenSession,
    SessionResult,
)

NEVER = 10**18
SESSION_TTR_MIN_MS = 40


def later(now, span):
    return NEVER if span >= FOREVER_MS or now >= NEVER else now + span


def longer(span, more):
    return min(FOREVER_MS, span + more)


class NaiveSessions:
    """Operations on the lists of sessions and tasks."""

    def session(self, session_id):
        return next((found for found in self.sessions if found["id"] == session_id), None)

    def held(self, session):
        return sorted(
            (task for task in self.tasks if task["session"] is session and task["token"]),
            key=lambda task: task["token"],
        )

    def session_view(self, session):
        expires = 0 if session["expires"] >= NEVER else session["expires"]
        taken = len(self.held(session))
        return SessionView(
            session["id"],
            session["name"],
            session["ttr"],
            expires,
            taken,
            session["created"],
            labels=session["labels"],
        )

    def do_opensession(self, command: OpenSession):
        session = self.session(command.session_id)
        if not session:
            self.session_numbers += 1
            ttr = self.session_ttr(command.ttr_ms) if command.as_settings else command.ttr_ms
            attached = ttr == 0
            session = {
                "id": command.session_id,
                "number": self.session_numbers,
                "owner": command.owner,
                "name": command.name,
                "labels": command.labels,
                "ttr": ttr,
                "default_ttr": command.ttr_ms if command.as_settings else None,
                "created": self.now,
                "attached": attached,
                "orphaned": False,
                "expires": NEVER if attached else later(self.now, ttr),
            }
            self.sessions.append(session)
        return SessionResult(self.session_view(session))

    def session_ttr(self, default):
        """Return the TTR of a session that sets no TTR."""
        wish = self.settings.session_ttr_ms
        if wish is None:
            return default
        return max(wish, SESSION_TTR_MIN_MS) if default else wish

    def do_keepsessions(self, command: KeepSessions):
        kept, refused = [], []
        for item, session_id in enumerate(command.session_ids):
            session = self.session(session_id)
            if not session:
                refused.append((item, Reason.SESSION_NOT_FOUND))
                continue
            if not session["attached"]:
                session["orphaned"] = False
                session["expires"] = max(session["expires"], later(self.now, session["ttr"]))
            kept.append(self.session_view(session))
        return KeepResult(kept, refused)

    def do_attachsession(self, command: AttachSession):
        session = self.session(command.session_id)
        if not session:
            return KeepResult([], [(0, Reason.SESSION_NOT_FOUND)])
        if command.attached:
            session.update(attached=True, orphaned=False, expires=NEVER)
        elif session["attached"]:
            session.update(attached=False, expires=later(self.now, session["ttr"]))
            if session["ttr"] == 0:
                self.end(session)
                return KeepResult([])
        return KeepResult([self.session_view(session)])

    def do_closesession(self, command: CloseSession):
        session = self.session(command.session_id)
        if not session:
            return Reason.SESSION_NOT_FOUND
        session["orphaned"] = False
        return CountResult(self.end(session, uncounted=command.uncounted))

    def end(self, session, *, uncounted=False):
        held = len(self.held(session))
        self.sessions.remove(session)
        self.go_on({"session": session, "uncounted": uncounted}, max(self.steps, 0))
        return held

    # ---------------------------------------------------------------------------- work in steps

    def returns_of(self, session):
        return any(work.get("session") is session for work in self.returns if session)

    def continue_returns(self, room):
        while room > 0 and self.returns:
            room -= max(self.go_on(self.returns.pop(0), room), 1)

    def go_on(self, work, most):
        """Return the first leases of an ended session, or of a tube; return their number."""
        session = work.get("session")
        tasks = self.held(session) if session else self.taken_before(work)
        for task in tasks[:most]:
            self.return_lease(task, work)
        self.steps -= len(tasks[:most])
        if len(tasks) > most:
            self.wait_again(work)
        return len(tasks[:most])

    def return_lease(self, task, work):
        session = work.get("session")
        if not session:
            self.come_back(task, EventKind.RELEASE_ALL)
            return
        is_orphaned = session["orphaned"]
        kind = EventKind.STARTUP_RELEASE if is_orphaned else EventKind.SESSION_RELEASE
        if work["uncounted"]:
            self.come_back(task, kind)
            task["attempt"] -= 1
        else:
            self.lose(task, kind, "SESSION_ENDED", "the session that held the task ended")

    def return_of(self, task):
        """Return the unfinished return of a lease, that of its session before that of its tube."""
        for work in self.returns:
            if work.get("session") and work["session"] is task["session"]:
                return work
        for work in self.returns:
            if work.get("tube") is task["tube"] and task["token"] <= work["last"]:
                return work
        return None

    def wait_again(self, work):
        """Let work wait behind the other work, or in the place of older work for the same tube."""
        for place, other in enumerate(self.returns):
            if other.get("tube") is work.get("tube") and not work.get("session"):
                self.returns[place] = work
                return
        self.returns.append(work)

    def taken_before(self, work):
        tasks = (
            self.of(work["tube"], State.TAKEN)
            if any(work["tube"] is tube for tube in self.tubes)
            else []
        )
        tasks = [task for task in tasks if task["token"] <= work["last"]]
        return sorted(tasks, key=lambda task: task["token"])

    def do_startup(self, command: Startup):
        configured = self.settings.failover_grace_ms
        failover = command.failover_grace_ms if configured is None else configured
        for session in self.sessions:
            grace = max(session["ttr"], failover)
            session.update(attached=False, orphaned=True, expires=later(self.now, grace))
        return StartupResult(0)
