"""All drills, by name."""

from __future__ import annotations

from collections.abc import Sequence

from tests.drill.cluster_faults import KilledRestore, Recover, Restore, Upgrade
from tests.drill.disk_faults import (
    SMALL_FILES,
    FailingSync,
    FullDisk,
    HungReads,
    PowerCut,
    SlowDisk,
    SmallDisks,
)
from tests.drill.drill_run import Drill
from tests.drill.faults import Fault, Scene, all_of, follower_of, leader_of
from tests.drill.hostile import INTRUDERS
from tests.drill.hostile_requests import DemandingCaller
from tests.drill.link_faults import (
    BadLinks,
    Partition,
    all_pairs,
    bridge,
    halves,
    leader_alone,
    one_way,
)
from tests.drill.member_faults import (
    FAST_SLACK_SECONDS,
    AddAndRemove,
    FastClock,
    FlippedBit,
    FlippedSnapshot,
    Transfer,
    WrongClock,
)
from tests.drill.process_faults import FewDescriptors, Kill, LittleMemory, Pause, Restart
from tests.drill.state_faults import (
    SCRUBBED,
    DamagedSender,
    DamagedState,
    FlippedRepair,
    LostState,
    OldState,
    SecondDamage,
)
from tests.drill.volume_faults import ClonedVolume, DamagedCopies, SwappedVolumes
from tools.packet_links import PacketLinks
from tools.peer_links import PeerLinks, Quality
from tools.power_loss import PowerLoss
from tools.sync_fault import SyncFaults

MIB = 1 << 20
FLAP_SECONDS = (0.05, 0.3)


def _power_cuts(scene: Scene) -> Sequence[Fault]:
    power = PowerLoss(scene.cluster, scene.folder / "power")
    return [
        PowerCut(leader_of, power),
        PowerCut(all_of, power, stops_all=True),
        PowerCut(follower_of, power),
        Pause(leader_of),
    ]


def _mixed(scene: Scene) -> Sequence[Fault]:
    power = PowerLoss(scene.cluster, scene.folder / "power")
    syncs = SyncFaults(scene.cluster, scene.folder / "syncs")
    return [
        Kill(leader_of),
        Partition(leader_alone),
        PowerCut(all_of, power, stops_all=True),
        Pause(leader_of),
        Partition(one_way),
        Transfer(),
        BadLinks(Quality(delay_seconds=0.01, jitter_seconds=0.05, loss=0.1)),
        FailingSync(follower_of, syncs, is_once=True),
        SlowDisk(leader_of, syncs),
        Restart(moves=False),
    ]


def _failing_syncs(scene: Scene) -> Sequence[Fault]:
    faults = SyncFaults(scene.cluster, scene.folder / "syncs")
    return [
        FailingSync(leader_of, faults, is_once=True),
        FailingSync(follower_of, faults, is_once=False),
        FailingSync(leader_of, faults, is_once=False),
        FailingSync(follower_of, faults, is_once=True),
    ]


def _slow_disks(scene: Scene) -> Sequence[Fault]:
    faults = SyncFaults(scene.cluster, scene.folder / "syncs")
    return [
        SlowDisk(leader_of, faults),
        SlowDisk(leader_of, faults, delay_ms=None),
        SlowDisk(follower_of, faults, delay_ms=None),
        SlowDisk(all_of, faults, delay_ms=100),
    ]


def _full_disks(scene: Scene) -> Sequence[Fault]:
    disks = SmallDisks(scene)
    return [
        FullDisk(follower_of, disks),
        FullDisk(leader_of, disks),
        FullDisk(leader_of, disks, left_bytes=4 * MIB),
    ]


def _hung_reads(scene: Scene) -> Sequence[Fault]:
    faults = SyncFaults(scene.cluster, scene.folder / "reads")
    return [HungReads(leader_of, faults), HungReads(follower_of, faults)]


def _flipped_bits(_scene: Scene) -> Sequence[Fault]:
    return [
        FlippedBit("raft-0/log/*.log"),
        FlippedBit("**/*.sst"),
        FlippedBit("raft-0/*"),
        FlippedBit("**/MANIFEST-*"),
    ]


def _damaged_states(_scene: Scene) -> Sequence[Fault]:
    damaged = DamagedState()
    return [damaged, damaged, OldState(), damaged, damaged, FlippedRepair(), LostState()]


def _damaged_senders(_scene: Scene) -> Sequence[Fault]:
    sender = DamagedSender()
    return [sender, SecondDamage(), sender]


DRILLS = (
    Drill("kill-leader", lambda _: [Kill(leader_of)]),
    Drill("kill-follower", lambda _: [Kill(follower_of)]),
    Drill("kill-all", lambda _: [Kill(all_of, stops_all=True)]),
    Drill("pause", lambda _: [Pause(leader_of), Pause(follower_of), Pause(leader_of)]),
    Drill(
        "partition",
        lambda _: [Partition(halves), Partition(leader_alone), Partition(one_way)],
        links=PeerLinks,
    ),
    Drill(
        "partition-five",
        lambda _: [Partition(each) for each in (halves, bridge, one_way, leader_alone)],
        size=5,
        links=PeerLinks,
    ),
    Drill(
        "partition-all",
        lambda _: [Partition(all_pairs, stops_all=True), Partition(bridge)],
        links=PeerLinks,
    ),
    Drill(
        "flapping-links",
        lambda _: [
            Partition(each, hold_seconds=FLAP_SECONDS)
            for each in (halves, one_way, bridge, leader_alone)
        ],
        links=PeerLinks,
        rest_seconds=(0.0, 0.05),
        waits_ready=False,
        unavailable_seconds_max=10.0,
    ),
    Drill(
        "bad-links",
        lambda _: [
            BadLinks(Quality(delay_seconds=0.05)),
            BadLinks(Quality(delay_seconds=0.01, jitter_seconds=0.08)),
            BadLinks(Quality(loss=0.2)),
            BadLinks(Quality(bits_per_second=500_000)),
        ],
        links=PeerLinks,
        rest_seconds=(0.0, 0.1),
        waits_ready=False,
    ),
    Drill(
        "packets",
        lambda _: [
            BadLinks(Quality(delay_seconds=0.02, jitter_seconds=0.04)),
            BadLinks(Quality(loss=0.1)),
            Partition(one_way),
            BadLinks(Quality(loss=0.3, jitter_seconds=0.02)),
            Partition(leader_alone),
            BadLinks(Quality(bits_per_second=2e6)),
            Partition(halves),
        ],
        links=PacketLinks,
        rest_seconds=(0.0, 0.2),
    ),
    Drill("power-loss", _power_cuts, settings=SMALL_FILES),
    Drill("failing-sync", _failing_syncs),
    Drill(
        "hung-reads", _hung_reads, settings={**SMALL_FILES, "TASKRAFT_BLOCK_CACHE_BYTES": str(MIB)}
    ),
    Drill("slow-disk", _slow_disks),
    Drill(
        "full-disk",
        _full_disks,
        settings={
            **SMALL_FILES,
            "TASKRAFT_WRITE_BUFFER_BYTES": str(MIB),
            "TASKRAFT_DISK_LOW_BYTES": str(8 * MIB),
        },
        unavailable_seconds_max=6.0,
    ),
    Drill("flipped-bits", _flipped_bits, settings=SMALL_FILES),
    Drill("damaged-state", _damaged_states, settings=SCRUBBED, seconds=120),
    # Two of three members repair themselves at the same time, so puts wait for one of them.
    Drill(
        "damaged-sender",
        _damaged_senders,
        settings=SCRUBBED,
        seconds=60,
        unavailable_seconds_max=10.0,
    ),
    Drill(
        "damaged-logs",
        lambda _: [DamagedCopies(3, ("log",)), DamagedCopies(2, ("log",))],
        settings={**SMALL_FILES, "TASKRAFT_COLLECT_ENTRIES": "100000"},
        seconds=40,
    ),
    Drill(
        "damaged-states",
        lambda _: [DamagedCopies(2, ("state",))],
        settings=SMALL_FILES,
        seconds=40,
    ),
    # The logs reach back to the first entry, so three lost states lose nothing.
    Drill(
        "damaged-copies",
        lambda _: [
            DamagedCopies(3, ("state",)),
            DamagedCopies(2, ("log", "state")),
            DamagedCopies(3, ("log", "state")),
        ],
        settings={
            "TASKRAFT_LOG_SEGMENT_BYTES": SMALL_FILES["TASKRAFT_LOG_SEGMENT_BYTES"],
            "TASKRAFT_COLLECT_ENTRIES": "100000",
        },
        seconds=60,
    ),
    Drill(
        "wrong-volumes",
        lambda _: [SwappedVolumes(), ClonedVolume()],
        settings=SMALL_FILES,
    ),
    Drill(
        "upgrade",
        lambda scene: [Upgrade(scene)],
        settings={"TASKRAFT_COMPARE_PERIOD_MS": "1000"},
        seconds=1,
    ),
    Drill("recover", lambda _: [Recover()], settings=SMALL_FILES),
    Drill("restore", lambda _: [Restore()], settings=SMALL_FILES),
    Drill("killed-restore", lambda _: [KilledRestore()], settings=SMALL_FILES),
    Drill("flipped-snapshot", lambda _: [FlippedSnapshot()], settings=SMALL_FILES),
    Drill("wrong-clock", lambda scene: [WrongClock(scene)]),
    Drill(
        "fast-clock",
        lambda scene: [FastClock(scene), Kill(leader_of), Transfer()],
        slack_seconds=FAST_SLACK_SECONDS,
    ),
    Drill("rolling-restart", lambda _: [Restart()]),
    Drill("members", lambda _: [AddAndRemove(), Transfer(), Kill(leader_of), Transfer()]),
    Drill(
        "hostile-principals",
        lambda _: [
            Kill(leader_of),
            Partition(leader_alone),
            AddAndRemove(),
            Transfer(),
            BadLinks(Quality(delay_seconds=0.01, jitter_seconds=0.05, loss=0.1)),
            Kill(follower_of),
        ],
        links=PeerLinks,
        hostile=INTRUDERS,
        seconds=40,
    ),
    Drill(
        "hostile-requests",
        _mixed,
        links=PeerLinks,
        hostile=(DemandingCaller,),
        watches_calm=True,
        pace_seconds=0.1,  # at 0.01, the clients alone use both cores of a small machine
        rest_seconds=(2.0, 4.0),
        seconds=70,
        unavailable_seconds_max=10.0,
    ),
    Drill("mixed", _mixed, links=PeerLinks, settings=SMALL_FILES, seconds=40),
    Drill(
        "limits",
        lambda _: [
            FewDescriptors(follower_of),
            LittleMemory(follower_of),
            FewDescriptors(leader_of),
        ],
    ),
)

SHORT = {"mixed": 10.0, "partition": 3.0, "hostile-principals": 10.0}
"""Drills that the test suite runs, with the seconds of each."""
