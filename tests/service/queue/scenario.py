"""Play scenario files: commands in, answers of the queue out.

A file is a sequence of blocks. A block consists of lines of commands, a line ``----`` and the
answers, and ends with an empty line. Lines that begin with ``#`` are comments; ``(features 2.16)``
refers to row 16 of the second table in docs/features.md, and ``(steps 3)`` sets the number of steps
that an entry may take for long work. Consecutive commands of a block form one
log entry::

    at +20                       advances the clock from the previous block, in ms; default +0
    create mail kind=fifottl ttr=30
    put mail body=a,b pri=1      one task per body; also delay, ttl, ttr, at, type, front, back
    take mail,news by=anna max=2
    ack 1,2                      tokens; also release, reject, bury-taken, touch; several with ";"
    open anna ttr=100            also keep, attach, detach, close

``scenario_policies.py`` describes policies and changes of tasks. ``scenario_selection.py``
describes operations on selected tasks.

Queries change nothing and are answered at their position: ``show TUBE``, ``oldest TUBE`` (since
when its oldest ready task has been ready), ``moves TUBE``, ``task TUBE ID``, ``sessions``,
``events`` (since the previous ``events``), ``deadline``.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

from taskraft_service.queue.entities.life_cycle import EventKind
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.refusal import CountResult, Refusal
from taskraft_service.queue.entities.retry_policy import NO_RETRY, Position
from taskraft_service.queue.entities.task_state import State, TaskOutcome
from taskraft_service.queue.entities.task_view import Failure
from taskraft_service.queue.entities.tube_counters import CountedOperation
from taskraft_service.queue.entities.tube_options import TtlPolicy, TubeKind
from taskraft_service.queue.entities.tube_profiles import PROFILES, defaults_of
from taskraft_service.queue.operations.batch import BatchResult, ExecuteBatch
from taskraft_service.queue.operations.cancel import CancelResult
from taskraft_service.queue.operations.kick_bury_delete import ReleaseAll
from taskraft_service.queue.operations.leadership import (
    NoteCalls,
    NotedCalls,
    SetWallOffset,
    Startup,
    StartupResult,
)
from taskraft_service.queue.operations.put import Put, PutResult
from taskraft_service.queue.operations.sessions import (
    AttachSession,
    CloseSession,
    KeepResult,
    KeepSessions,
    OpenSession,
    SessionResult,
)
from taskraft_service.queue.operations.settings import SettingsResult
from taskraft_service.queue.operations.settlements import (
    BuryTaken,
    Reject,
    Release,
    Settle,
    SettleResult,
    Touch,
)
from taskraft_service.queue.operations.take import Take, TakeResult
from taskraft_service.queue.operations.tubes import CreateTube, DropTube, TruncateTube, TubeResult
from tests.service.queue import scenario_groups as groups
from tests.service.queue import scenario_selection as selection
from tests.service.queue import scenario_settings as settings_changes
from tests.service.queue.scenario_groups import EPOCH_MS
from tests.service.queue.scenario_policies import (
    ack,
    dependencies,
    policies,
    progress,
    retry,
    shown,
    update,
)

QUESTIONS = (
    "show",
    "oldest",
    "moves",
    "task",
    "sessions",
    "events",
    "deadline",
    *groups.QUESTIONS,
    *selection.QUESTIONS,
)
FLAGS = (
    "front",
    "back",
    "atomic",
    "restart",
    "uncounted",
    "force",
    "fatal",
    "if_not_exists",
    "as_settings",
    "chain",
    *groups.FLAGS,
    *selection.FLAGS,
)


class Player:
    """Plays blocks on a queue.

    ``between`` gets the queue after each block and returns the queue for the next block.
    """

    def __init__(self, queue, between):
        self.queue = queue
        self.between = between
        self.index = 1
        self.now_ms = EPOCH_MS
        self.events_shown = 0
        self.queue.apply(1, EPOCH_MS, [Startup(1, 0, "feed", 3)])

    def play(self, lines):
        """Apply the commands of a block; return the answers as lines."""
        lines = [line for line in lines if not line.startswith("#")]
        if lines and lines[0].startswith("at "):
            self.now_ms += int(lines.pop(0).split("+")[1])
            if not lines or asks(lines[0]):
                self.apply([])
        answers = []
        for is_question, run in groupby(lines, asks):
            if is_question:
                answers += [answer for line in run for answer in self.ask(line)]
            else:
                for result in self.apply([command(line) for line in run]):
                    answers += answer_to(result)
        self.queue = self.between(self.queue)
        return answers

    def apply(self, commands):
        self.index += 1
        return self.queue.apply(self.index, self.now_ms, commands)

    def ask(self, line):
        """Answer a query."""
        word, *rest = line.split()
        if word == "deadline":
            due = self.queue.next_deadline_ms()
            return ["none" if due is None else instant(due)]
        if word == "sessions":
            return [session(view) for view in self.queue.sessions()] or ["none"]
        if word == "show":
            (counts,) = self.queue.statistics([rest[0]])
            states = [f"{state.name.lower()} {n}" for state, n in counts.states.items() if n]
            return [", ".join(states) or "empty", "calls: " + ", ".join(called(counts.calls))]
        if word == "oldest":
            (counts,) = self.queue.statistics([rest[0]])
            return [instant(counts.oldest_ready_ms) if counts.oldest_ready_ms else "none"]
        if word == "moves":
            (counts,) = self.queue.statistics([rest[0]])
            return [", ".join(map(transition, counts.transitions)) or "none"]
        if word == "task":
            (view,) = self.queue.get_tasks(rest[0], [int(rest[1])])
            return ["gone" if view is None else whole(view)]
        if word == "failed":
            return selection.failed(self.queue, rest[0], options(rest[1:]))
        if word in selection.QUESTIONS:
            line, where = selection.cut(line)
            return selection.ask(self.queue, rest[0], options(line.split()[2:]), where)
        if word in groups.QUESTIONS:
            return groups.ask(self.queue, word, rest)
        assert word == "events", line
        return self.events()

    def events(self):
        """Answer with the events since the last query."""
        feed = self.queue.feed
        rows = [
            event
            for part in feed.views()
            for _, event in feed.events(part.partition, part.low_seq, part.high_seq)
        ]
        rows.sort(key=lambda event: (event.revision, event.place))
        fresh, self.events_shown = rows[self.events_shown :], len(rows)
        return [
            f"{EventKind(event.kind).name} {event.tube}/{event.task_id}"
            f" {State(event.from_state).name} > {State(event.to_state).name}"
            f" at {instant(event.at_ms)} after {event.at_ms - event.since_ms}"
            f" attempt {event.attempt}"
            + word(event.session, "by")
            + word(event.reason, "because")
            + word(event.message, "message")
            + word(event.target, "other")
            + (f", {TaskOutcome(event.outcome).name}" if event.outcome else "")
            for event in fresh
        ] or ["none"]


def called(calls):
    """Return the counts that are not 0."""
    counts = {kind.name: calls.by_kind[kind] for kind in EventKind}
    counts |= {call.name: calls.noted[call] for call in CountedOperation}
    counts |= {f"ttl_{state.name}": calls.expired[state] for state in State}
    counts["finished"] = calls.finished
    return [f"{name.lower()} {count}" for name, count in counts.items() if count]


def transition(move):
    """Return a transition in the letters of xqueue: X means no state, S another tube."""
    void = "S" if move.crossing else "X"
    places = [
        void if state is State.GONE else state.name for state in (move.from_state, move.to_state)
    ]
    return f"{'-'.join(places)} {move.count}"


def asks(line):
    """Return whether a line is a query."""
    return line.split()[0] in QUESTIONS


def options(parts):
    """Parse ``name=value`` and flags."""
    found = {}
    for part in parts:
        name, _, text = part.partition("=")
        assert text or name in FLAGS, part
        found[name] = text or True
    return found


def numbers(text):
    return [int(part) for part in text.split(",")] if text else []


def span(found, name):
    return int(found[name]) if name in found else None


def failure(found):
    return Failure(found["because"], "", "fatal" in found) if "because" in found else None


def position(found):
    if "front" in found:
        return Position.FRONT
    return Position.BACK if "back" in found else Position.IN_ORDER


def command(line):  # noqa: PLR0912, C901 - one line per command
    """Parse a command."""
    line, where = selection.cut(line)
    word, *rest = line.split()
    if word == "batch":
        return ExecuteBatch([command(part.strip()) for part in line.removeprefix(word).split("|")])
    if word in ("ack", "release", "bury-taken", "reject", "touch"):
        *parts, last = line.removesuffix(" atomic").split(";")
        return Settle([settlement(part) for part in (*parts, last)], line.endswith(" atomic"))
    target = rest.pop(0) if rest and "=" not in rest[0] else ""
    found = options(rest)
    if word in selection.WORDS:
        return selection.command(word, target, found, where)
    match word:
        case "create":
            return create(target, found)
        case "put":
            return Put(target, tasks(found), "atomic" in found, found.get("request", ""))
        case "take":
            return take(target, found)
        case "release-all":
            return ReleaseAll(target)
        case "truncate":
            return TruncateTube(target)
        case "drop":
            return DropTube(target, "force" in found)
        case "open":
            ttr_ms = int(found.get("ttr", 15_000))
            return OpenSession(target, target, ttr_ms, as_settings="as_settings" in found)
        case "keep":
            return KeepSessions(target.split(","))
        case "attach" | "detach":
            return AttachSession(target, word == "attach")
        case "close":
            return CloseSession(target, "uncounted" in found)
        case "startup":
            return Startup(1, int(found["grace"]))
        case "note":
            counts = (int(found.get(name, 0)) for name in ("timeouts", "peeks", "metas"))
            return NoteCalls([NotedCalls(target, *counts)])
        case "wall":
            return SetWallOffset(int(target))
        case "configure" | "update-tube":
            return settings_changes.command(word, target, found)
        case _:
            return groups.command(word, target, found)


def create(name, found):
    """Return the creation of a tube, without back-off unless the line names a retry policy."""
    kind = TubeKind[found.get("kind", "fifottl").upper()]
    profile = found.get("profile", "")
    defaults = defaults_of(PROFILES[profile], kind)
    if not profile and found.get("retry") != "default":
        defaults = replace(defaults, retry=NO_RETRY)
    paused = found.get("paused", "")
    chosen = replace(
        defaults,
        higher_first=found.get("order") == "higher" or defaults.higher_first,
        put_paused="put" in paused,
        take_paused="take" in paused,
        subqueue_concurrency=int(found.get("subqueue_concurrency", 1)),
        subqueue_weights=weights(found.get("subqueue_weights", "")),
        **policies(found),
    )
    lenient = "if_not_exists" in found
    return CreateTube(name, kind, chosen, if_not_exists=lenient, profile=profile)


def weights(text):
    """Parse ``name:weight,name:weight``."""
    pairs = (part.split(":") for part in text.split(",") if part)
    return tuple(sorted((name, int(weight)) for name, weight in pairs))


def tasks(found):
    return [
        NewTask(
            body.encode(),
            len(body),
            priority=span(found, "pri"),
            delay_ms=span(found, "delay"),
            ttl_ms=span(found, "ttl"),
            ttr_ms=span(found, "ttr"),
            visible_at_ms=EPOCH_MS + int(found["at"]) if "at" in found else None,
            type=found.get("type", ""),
            subqueue=found.get("subqueue", ""),
            group=found.get("group", ""),
            position=position(found),
            retry=retry(found),
            dependencies=dependencies(found, item),
            **selection.key(found),
        )
        for item, body in enumerate(found["body"].split(","))
    ]


def take(target, found):
    """Parse a take; ``a:3,b:1`` are tubes with weights."""
    parts = [part.partition(":") for part in target.split(",")]
    weights = tuple(int(weight) for _, _, weight in parts if weight)
    return Take(
        [name for name, _, _ in parts],
        found.get("by", ""),
        int(found.get("max", 1)),
        int(found.get("bytes", 4_000_000)),
        ttr_ms=span(found, "ttr"),
        types=found["types"].split(",") if "types" in found else (),
        priority_bound=span(found, "bound"),
        task_id=span(found, "id"),
        request_id=found.get("request", ""),
        weights=weights,
    )


def settlement(line):
    word, target, *rest = line.split()
    found = options(rest)
    tokens = numbers(target)
    match word:
        case "ack":
            return ack(tokens, found)
        case "bury-taken":
            return BuryTaken(tokens, failure(found), update(found))
        case "reject":
            return Reject(tokens, failure(found))
        case "touch":
            return Touch(tokens, int(found.get("by", 0)), "restart" in found, progress(found))
        case "release":
            return release(tokens, found)
        case _:
            raise AssertionError(line)


def release(tokens, found):
    policy = TtlPolicy[found["policy"].upper()] if "policy" in found else None
    return Release(
        tokens,
        delay_ms=span(found, "delay"),
        ttl_policy=policy,
        ttl_ms=span(found, "ttl"),
        position=position(found),
        uncounted="uncounted" in found,
        failure=failure(found),
        move_to=found.get("to", ""),
        update=update(found),
    )


def instant(at_ms):
    return f"+{at_ms - EPOCH_MS}"


def word(text, before):
    return f" {before} {text}" if text else ""


def session(view):
    end = f"until {instant(view.expires_ms)}" if view.expires_ms else "attached"
    return f"{view.session_id} {end} holds {view.taken}"


def leased(view):
    until = f" until {instant(view.lease_until_ms)}" if view.lease_until_ms else ""
    text = f"{view.tube}/{view.id} {view.body.decode()} token {view.token} attempt {view.attempt}"
    return text + until


def whole(view):
    parts = [f"{view.state.name} pri {view.priority} attempt {view.attempt}"]
    named = {
        "visible": view.visible_at_ms,
        "expires": view.expire_at_ms,
        "lease until": view.lease_until_ms,
    }
    parts += [f"{name} {instant(at_ms)}" for name, at_ms in named.items() if at_ms]
    parts += [f"ttr {view.ttr_ms}"] if view.ttr_ms else []
    parts += [f"ttl {view.ttl_ms}"] if view.ttl_ms else []
    parts += shown(view.extras, instant)
    return ", ".join(parts)


def refusal(refused):
    details = "".join(f" {name}={text}" for name, text in refused.metadata.items())
    return f"{refused.reason.name}{details}"


def answer_to(result):  # noqa: C901 - one line per kind of answer
    """Return the answer to a command as lines."""
    items = [
        f"  item {item.item} {refusal(item.refusal)}" for item in getattr(result, "refused", ())
    ]
    match result:
        case Refusal():
            return [refusal(result)]
        case BatchResult(results):
            return [f"  {line}" for one in results for line in answer_to(one)]
        case PutResult(ids, _, existing):
            there = f", there before: {' '.join(map(str, existing))}" if existing else ""
            return ["put " + " ".join(str(task_id) for task_id in ids) + there, *items]
        case TakeResult(tasks):
            return [leased(view) for view in tasks] or ["nothing"]
        case SettleResult(_, touched, given_up):
            ends = [
                f"  touched {lease.token}"
                + (f" until {instant(lease.lease_until_ms)}" if lease.lease_until_ms else "")
                + (" asked to stop" if lease.cancel_requested else "")
                for lease in touched
            ]
            ends += [f"  given up {lease.token} {lease.outcome.name.lower()}" for lease in given_up]
            return ["settled", *items, *ends]
        case CountResult() | CancelResult():
            return [selection.answer_to(result), *items]
        case TubeResult(tube, existed):
            return [f"{'existing' if existed else 'created'} {tube.name} {tube.kind.name.lower()}"]
        case SessionResult(view):
            return [session(view)]
        case KeepResult(views):
            return [session(view) for view in views] + items or ["no session"]
        case SettingsResult(settings):
            return [settings_changes.answer_to(settings)]
        case StartupResult(released):
            return [f"released {released}"]
        case _:
            return groups.answer_to(result)


def blocks(text):
    """Split a file into (comments and commands, answers)."""
    for part in text.strip().split("\n\n"):
        lines = part.split("\n")
        if "----" in lines:
            cut = lines.index("----")
            yield lines[:cut], lines[cut + 1 :]
        else:
            yield lines, None


def rewritten(text, queue, between):
    """Return the text with the actual answers of the queue."""
    player = Player(queue, between)
    parts = []
    for lines, _ in blocks(text):
        answers = None
        if any(not line.startswith("#") for line in lines):
            answers = player.play(lines)
        parts.append("\n".join(lines if answers is None else [*lines, "----", *answers]))
    return "\n\n".join(parts) + "\n"
