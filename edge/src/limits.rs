//! All limits of a server.

use std::time::Duration;

/// Largest message that is received before the caller is authenticated, and before a handler asks
/// for the message.
pub const SMALL_MESSAGE_BYTES: usize = 64 * 1024;
/// Number and size of the messages of a stream that Python has received and not read yet. At the
/// limit, the edge receives no more of the stream, so that flow control stops the client.
pub const AHEAD_MESSAGES: usize = 16;
/// See [`AHEAD_MESSAGES`].
pub const AHEAD_BYTES: usize = 64 * 1024;
/// Python is told of sent bytes in steps of this size; a writer waits from twice this size.
pub const SENT_STEP_BYTES: usize = 32 * 1024;
/// Largest answer that is handed to HTTP/2 at once, even if the client's window is smaller.
pub const SMALL_ANSWER_BYTES: usize = 16 * 1024;
/// Flow control window of a stream.
pub const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
/// Flow control window of the connection of a known client: bound for the bytes that its streams have
/// not consumed.
pub const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;

/// The same for an unknown client; HTTP/2 has no smaller window.
pub const UNKNOWN_WINDOW_BYTES: u32 = 65_535;

/// The limits that the node decides.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum number of concurrent calls.
    pub calls: usize,
    /// Maximum number of connections; further connections are closed.
    pub connections: usize,
    /// Maximum number of concurrent calls of one connection.
    pub calls_per_connection: u32,
    /// Maximum size of the headers of a request, as HTTP/2 counts.
    pub metadata_bytes: u32,
    /// Maximum size of a received message, decompressed.
    pub received_bytes: usize,
    /// Maximum size of a sent message.
    pub sent_bytes: usize,
    /// Half the silence after which a connection is pinged, and the maximum wait for an answer.
    pub ping: Duration,
    /// Minimum interval between the pings of a client.
    pub client_ping: Duration,
    /// Maximum time for TLS and the preface of HTTP/2, and again for the reply to the settings.
    pub handshake: Duration,
    /// Maximum time of a connection without a call.
    pub idle: Duration,
    /// Maximum time without a byte of a message that has begun, or of the request of a unary call.
    pub stall: Duration,
    /// Maximum time for which events wait for the event loop; then further calls are refused.
    pub unresponsive: Duration,
    /// Bytes that the unfinished messages of unknown clients may hold together.
    pub unknown_budget_bytes: usize,
    /// Bytes that the unfinished small messages of known clients may hold together.
    pub small_budget_bytes: usize,
    /// Bytes that all unfinished messages for which a handler waits may hold together.
    pub large_budget_bytes: usize,
}
