//! The native edge of a taskraft node: the gRPC server towards clients.
//!
//! One thread does all work of a connection: TLS, HTTP/2, and the framing and rules of gRPC. The
//! event loop of Python runs the handlers. Both sides exchange two lists, see [`exchange`]: events
//! of calls go to Python, commands for calls come back. One eventfd wakes Python, however many
//! events wait, so a busy node pays for few wake-ups.
//!
//! | module | concept |
//! | --- | --- |
//! | [`python`] | the class `Edge`, which Python sees |
//! | [`exchange`] | the two lists between the threads |
//! | [`server`] | the thread, its listeners, and the end of service |
//! | [`listener`] | the sockets that listen |
//! | [`connection`] | one connection: handshakes, keepalive, idle time, its calls |
//! | [`transport`] | counts the frames of a connection, and ends a connection with a reason |
//! | [`authority`] | mends a header that h2 does not accept |
//! | [`conduct`] | what a client may do: pings, resets |
//! | [`call`] | one call: its messages, deadline, flow control and end |
//! | [`inbound`] | received messages of a call |
//! | [`outbound`] | sent messages and the status of a call |
//! | [`head`] | the headers of a request |
//! | [`metadata`] | metadata as headers, and headers as metadata |
//! | [`standing`] | whether the client of a connection is known |
//! | [`status`] | status codes and texts |
//! | [`compression`] | gzip and deflate |
//! | [`budget`] | a bound for the bytes of unfinished messages |
//! | [`tls`] | certificates |
//! | [`limits`] | all limits of a server |
//! | [`counters`] | how often each limit has acted |
//! | [`watched`] | work whose panic is reported to Python |

pub mod authority;
pub mod budget;
pub mod call;
pub mod compression;
pub mod conduct;
pub mod connection;
pub mod counters;
pub mod exchange;
pub mod head;
pub mod inbound;
pub mod limits;
pub mod listener;
pub mod metadata;
pub mod outbound;
pub mod python;
pub mod server;
pub mod standing;
pub mod status;
pub mod tls;
pub mod transport;
pub mod watched;
