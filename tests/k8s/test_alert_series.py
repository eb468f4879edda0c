"""Each alert fires although its series are young, interrupted, of a new pod, or a day old."""

from typing import NamedTuple

import pytest
import yaml

from tests.k8s.test_alerts import ALERTS, failures, write_rules

pytestmark = pytest.mark.real_time

DAY_MINUTES = 26 * 60
YOUNG_MINUTES = 30
CLUSTER = {"job": "taskraft-http", "namespace": "q"}
POD = {**CLUSTER, "pod": "taskraft-0"}


class Trouble(NamedTuple):
    """A lasting state of a cluster in which an alert must fire, with samples each minute."""

    series: tuple[tuple[str, dict[str, str], str], ...]
    """Name, labels, and values in the notation of promtool, without their number."""
    labels: dict[str, str]
    """Labels of the alert, without severity and namespace."""
    minutes: int = 40
    """Time after which the alert fires."""


def pod(name, value, **labels):
    return (name, {**POD, **labels}, value)


VOTERS = pod("taskraft_voters", "3")
TROUBLES = {
    "TaskraftNodeDown": Trouble((VOTERS, pod("taskraft_is_voter", "1")), {}),
    "TaskraftMajorityLost": Trouble((VOTERS, pod("taskraft_is_voter", "1")), {}),
    "TaskraftNoLeader": Trouble((pod("taskraft_has_leader", "0"),), {}),
    "TaskraftLeaderUnstable": Trouble((pod("taskraft_leader_changes_total", "0+1"),), {}),
    "TaskraftNodeRestarts": Trouble(
        (pod("process_start_time_seconds", "9+60"),), {"pod": "taskraft-0"}
    ),
    "TaskraftPeerBehind": Trouble(
        (pod("taskraft_peer_lag_entries", "20000", peer="3"),), {"peer": "3"}
    ),
    "TaskraftCommitsSlow": Trouble(
        (
            pod("taskraft_entry_seconds_bucket", "0+9", le="0.5"),
            pod("taskraft_entry_seconds_bucket", "0+10", le="1"),
            pod("taskraft_entry_seconds_bucket", "0+10", le="+Inf"),
        ),
        {},
    ),
    "TaskraftLoopBlocked": Trouble(
        (pod("taskraft_loop_long_runs_total", "0+2", over="100ms", place="apply", method=""),),
        {"pod": "taskraft-0", "place": "apply"},
    ),
    "TaskraftCallsRefused": Trouble(
        (
            pod("taskraft_calls_total", "0+9", outcome="OK"),
            pod("taskraft_calls_total", "0+1", outcome="OVERLOADED"),
        ),
        {},
    ),
    "TaskraftDiskStalled": Trouble(
        (pod("taskraft_disk_stalls_total", "0+1", group="0"),), {"pod": "taskraft-0", "group": "0"}
    ),
    "TaskraftDiskLow": Trouble((pod("taskraft_disk_low", "1"),), {"pod": "taskraft-0"}),
    "TaskraftDiskFills": Trouble(
        (pod("taskraft_disk_free_bytes", "10000000-5000"),), {"pod": "taskraft-0"}, 700
    ),
    "TaskraftWallClockDeviates": Trouble(
        (pod("taskraft_wall_clock_deviates", "1"),), {"pod": "taskraft-0"}
    ),
    "TaskraftCertificateExpires": Trouble(
        (pod("taskraft_certificate_expires_timestamp_seconds", "86400", port="peer"),),
        {"pod": "taskraft-0", "port": "peer"},
        70,
    ),
    "TaskraftTubeQuarantined": Trouble((pod("taskraft_quarantined_tubes", "1"),), {}),
    "TaskraftBacklogOld": Trouble(
        (pod("taskraft_oldest_ready_age_seconds", "7200", tube="mail"),), {"tube": "mail"}
    ),
    "TaskraftFeedConsumerLost": Trouble(
        (pod("taskraft_feed_consumer_lost_events", "1", consumer="journal"),),
        {"consumer": "journal"},
    ),
    "TaskraftTasksBuried": Trouble(
        (pod("taskraft_tasks", "0+5", tube="mail", state="buried"),), {"tube": "mail"}
    ),
    "TaskraftDataDamaged": Trouble(
        (pod("taskraft_damaged_files", "1", part="log"),), {"pod": "taskraft-0", "part": "log"}
    ),
    "TaskraftStatesDiffer": Trouble((pod("taskraft_state_differences_total", "1+1"),), {}),
    "TaskraftSnapshotOld": Trouble(
        (VOTERS, pod("taskraft_snapshots_saved_total", "0")), {}, 30 * 60 + 70
    ),
}


def written(name, labels):
    pairs = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return f"{name}{{{pairs}}}"


def values(pattern, first, count):
    """Return `count` samples of a pattern from its sample number `first`."""
    start, sign, step = pattern.partition("-" if "-" in pattern else "+")
    if not sign:
        return f"{start}x{count - 1}"
    begin = int(start) + first * int(f"{sign}{step}")
    return f"{begin}{sign}{step}x{count - 1}"


def young(trouble):
    """The series begin half an hour after the monitoring."""
    total = trouble.minutes + 10
    series = [
        (written(name, labels), f"_x{YOUNG_MINUTES} {values(pattern, 0, total)}")
        for name, labels, pattern in trouble.series
    ]
    return series, YOUNG_MINUTES + trouble.minutes + 5


def interrupted(trouble):
    """Three scrapes fail while the alert fires."""
    total = trouble.minutes + 20
    before = trouble.minutes + 2
    series = [
        (
            written(name, labels),
            f"{values(pattern, 0, before)} _x3 {values(pattern, before + 3, total)}",
        )
        for name, labels, pattern in trouble.series
    ]
    return series, before + 4


def relabelled(trouble):
    """The pod gets another address, so all its series end and others begin."""
    switch = trouble.minutes + 2
    series = []
    for name, labels, pattern in trouble.series:
        ended = f"{values(pattern, 0, switch)} stale"
        series.append((written(name, {**labels, "instance": "10.0.0.1:7480"}), ended))
        first = 0 if name.endswith(("_total", "_bucket")) else switch
        begun = f"_x{switch} {values(pattern, first, 60)}"
        series.append((written(name, {**labels, "instance": "10.0.0.2:7480"}), begun))
    return series, switch + 4


def old(trouble):
    """The trouble lasts for more than a day."""
    total = trouble.minutes + DAY_MINUTES + 5
    series = [
        (written(name, labels), values(pattern, 0, total))
        for name, labels, pattern in trouble.series
    ]
    return series, trouble.minutes + DAY_MINUTES


def case(alert, series, minute, labels):
    """Return a test of promtool; labels None: the alert must not fire."""
    expected = [] if labels is None else [{"exp_labels": labels}]
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": samples} for name, samples in series],
        "alert_rule_test": [
            {"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": expected}
        ],
    }


def run(folder, *cases):
    """Run the cases, each with only the alert that it tests; return what failed."""
    files = []
    for number, one in enumerate(cases):
        (tested,) = one["alert_rule_test"]
        rules, file = f"rules{number}.yaml", f"alerts{number}.yaml"
        alerts = [rule for rule in ALERTS if rule["alert"] == tested["alertname"]]
        write_rules(folder / rules, alerts)
        content = {"rule_files": [rules], "evaluation_interval": "1m", "tests": [one]}
        (folder / file).write_text(yaml.safe_dump(content))
        files.append(file)
    return failures(folder, *files)


def test_each_alert_has_a_trouble():
    assert TROUBLES.keys() == {rule["alert"] for rule in ALERTS}


@pytest.mark.parametrize("shape", [young, interrupted, relabelled, old])
def test_every_alert_fires_whatever_its_series_look_like(tmp_path, shape):
    cases = []
    for rule in ALERTS:
        trouble = TROUBLES[rule["alert"]]
        series, minute = shape(trouble)
        labels = {"severity": rule["labels"]["severity"], "namespace": "q", **trouble.labels}
        cases.append(case(rule["alert"], series, minute, labels))
    assert run(tmp_path, *cases) == ""


def test_no_alert_fires_without_series(tmp_path):
    assert run(tmp_path, *(case(rule["alert"], [], 120, None) for rule in ALERTS)) == ""


LOST = {"severity": "critical", "namespace": "q"}


def all_gone(minutes):
    """All pods of a cluster with three voters end after ten minutes."""
    series = []
    for number in range(3):
        labels = {**CLUSTER, "pod": f"taskraft-{number}"}
        series += [(written("taskraft_voters", labels), f"3x9 stale _x{minutes}")]
        series += [(written("taskraft_is_voter", labels), f"1x9 stale _x{minutes}")]
    return series


def test_a_lost_majority_lasts_until_the_cluster_is_said_to_be_removed(tmp_path):
    alert, days = "TaskraftMajorityLost", 2 * 1_440
    removed = ('taskraft:removed{namespace="q"}', f"_x{days} 1x1500")
    told = run(
        tmp_path,
        case(alert, all_gone(days), days, LOST),
        case(alert, [*all_gone(days), removed], days - 1, LOST),
        case(alert, [*all_gone(days), removed], days + 10, None),
        case(alert, [*all_gone(days), (removed[0], f"_x{days} 1x1450 stale")], days + 2_000, None),
    )
    assert told == ""


def buried(values, tube="mail"):
    return (written("taskraft_tasks", {**POD, "tube": tube, "state": "buried"}), values)


def test_a_young_tube_with_many_buried_tasks_fires(tmp_path):
    labels = {"severity": "warning", "namespace": "q", "tube": "mail"}
    alert = "TaskraftTasksBuried"
    told = run(
        tmp_path,
        case(alert, [buried("_x90 5000x30")], 100, labels),
        case(alert, [buried("50x200")], 100, None),
        # Tubes without own series have the name "(other)" together.
        case(alert, [buried("70x60 5000x60", "(other)")], 70, {**labels, "tube": "(other)"}),
    )
    assert told == ""


def test_a_pod_with_a_new_address_after_each_restart_is_told(tmp_path):
    series = [
        (
            written("process_start_time_seconds", {**POD, "instance": f"10.0.0.{number}:7480"}),
            f"_x{5 * number} {number}x3 stale",
        )
        for number in range(6)
    ]
    labels = {"severity": "warning", "namespace": "q", "pod": "taskraft-0"}
    told = run(
        tmp_path,
        case("TaskraftNodeRestarts", series, 28, labels),
        case("TaskraftNodeRestarts", series[:4], 19, None),
    )
    assert told == ""
