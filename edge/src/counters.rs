//! What the edge counts for the metrics of the node.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

/// A limit of the edge. Most have the name of their setting, see [`crate::limits`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Limit {
    /// A connection was closed because there were too many.
    Connections,
    /// A connection was closed because its handshakes took too long.
    Handshake,
    /// A connection was closed because it had no call for long.
    Idle,
    /// A connection was closed because it did not answer a ping.
    Ping,
    /// A connection was closed because it pinged too often.
    ClientPing,
    /// A connection was closed because it reset calls, or changed settings, too often.
    Resets,
    /// A connection was closed because it broke the rules of HTTP/2, or a limit of h2.
    Protocol,
    /// A call was refused because its connection had too many.
    CallsPerConnection,
    /// A call was refused because the server had too many.
    Calls,
    /// A call was refused because its headers were too large.
    Metadata,
    /// A call was refused because its message was too large.
    Received,
    /// A call was ended because its answer was too large.
    Sent,
    /// A call was refused because unfinished messages of unknown clients held too many bytes.
    UnfinishedUnknown,
    /// A call was refused because unfinished small messages held too many bytes.
    UnfinishedSmall,
    /// A call was refused because unfinished demanded messages held too many bytes.
    Unfinished,
    /// A call was ended because its message did not arrive.
    Stall,
    /// A stream had so many unread messages that the edge stopped to receive.
    Unread,
    /// A call was refused because the event loop of Python did not take events.
    Unresponsive,
}

/// All limits, each with its name in the metrics.
pub const LIMITS: [(Limit, &str); 18] = [
    (Limit::Connections, "connections_max"),
    (Limit::Handshake, "handshake_ms"),
    (Limit::Idle, "idle_ms"),
    (Limit::Ping, "ping_ms"),
    (Limit::ClientPing, "client_ping_ms_min"),
    (Limit::Resets, "resets"),
    (Limit::Protocol, "protocol"),
    (Limit::CallsPerConnection, "calls_per_connection_max"),
    (Limit::Calls, "calls_max"),
    (Limit::Metadata, "metadata_bytes_max"),
    (Limit::Received, "received_bytes_max"),
    (Limit::Sent, "sent_bytes_max"),
    (Limit::UnfinishedUnknown, "unfinished_unknown_bytes_max"),
    (Limit::UnfinishedSmall, "unfinished_small_bytes_max"),
    (Limit::Unfinished, "unfinished_bytes_max"),
    (Limit::Stall, "stall_ms"),
    (Limit::Unread, "unread_messages"),
    (Limit::Unresponsive, "unresponsive_ms"),
];

/// Numbers that the thread of the edge writes and any thread reads.
#[derive(Debug, Default)]
pub struct Counters {
    acted: [AtomicU64; LIMITS.len()],
    /// Open connections.
    pub connections: AtomicUsize,
    /// Calls in progress.
    pub calls: AtomicUsize,
    /// Bytes of the unfinished messages of unknown clients.
    pub unknown_bytes: Arc<AtomicUsize>,
    /// Bytes of the unfinished small messages of known clients.
    pub small_bytes: Arc<AtomicUsize>,
    /// Bytes of the unfinished demanded messages.
    pub large_bytes: Arc<AtomicUsize>,
}

impl Counters {
    /// Notes that a limit has acted.
    pub fn count(&self, limit: Limit) {
        self.acted[limit as usize].fetch_add(1, Relaxed);
    }

    /// Returns how often each limit has acted, by its name.
    pub fn acted(&self) -> impl Iterator<Item = (&'static str, u64)> {
        LIMITS.iter().map(|(limit, name)| (*name, self.acted[*limit as usize].load(Relaxed)))
    }

    /// Returns what is in use now, by name.
    #[must_use]
    pub fn in_use(&self) -> [(&'static str, usize); 5] {
        [
            ("connections", self.connections.load(Relaxed)),
            ("calls", self.calls.load(Relaxed)),
            ("unfinished_unknown_bytes", self.unknown_bytes.load(Relaxed)),
            ("unfinished_small_bytes", self.small_bytes.load(Relaxed)),
            ("unfinished_bytes", self.large_bytes.load(Relaxed)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_has_its_own_counter() {
        let counters = Counters::default();
        for (place, (limit, _)) in LIMITS.iter().enumerate() {
            assert_eq!(*limit as usize, place);
            for _ in 0..place {
                counters.count(*limit);
            }
        }
        let numbers: Vec<_> = counters.acted().map(|(_, number)| number).collect();
        assert_eq!(numbers, (0..LIMITS.len() as u64).collect::<Vec<_>>());
    }
}
