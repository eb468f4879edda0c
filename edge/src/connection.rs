//! One connection: handshakes, keepalive, idle time, and its calls.

use std::{
    cell::{Cell, RefCell},
    io,
    net::SocketAddr,
    rc::Rc,
    sync::Arc,
    task::{Context, Waker},
    time::{Duration, Instant},
};

use bytes::Bytes;
use h2::{Ping, PingPong, server};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::{
    call::{self, Client},
    conduct::{Conduct, IDLE, NO_REPLY_TO_SETTINGS},
    counters::Limit,
    exchange::Peer,
    limits::{CONNECTION_WINDOW_BYTES, Limits, STREAM_WINDOW_BYTES, UNKNOWN_WINDOW_BYTES},
    server::Hub,
    standing::Standing,
    transport::Transport,
    watched,
};

/// The factor between the headers that HTTP/2 receives and the headers that a call may have. In
/// between, the call is refused with a status of gRPC; above, with a status of HTTP.
const HEADERS_MARGIN: u32 = 4;
/// Calls of one connection that were reset before the edge saw them. Each costs a few bytes, and
/// [`crate::conduct`] limits their rate.
const RESET_CALLS_MAX: usize = 4_096;

/// Why a connection ends before its first call.
#[derive(Debug)]
pub enum HandshakeError {
    /// The client was too slow.
    Late,
    /// The socket or TLS failed.
    Io(io::Error),
    /// HTTP/2 failed.
    Http(h2::Error),
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<h2::Error> for HandshakeError {
    fn from(error: h2::Error) -> Self {
        Self::Http(error)
    }
}

/// Serves a connection until it ends.
///
/// # Errors
///
/// The client did not complete the handshakes.
pub async fn serve(hub: Rc<Hub>, socket: TcpStream, address: SocketAddr) -> Result<(), HandshakeError> {
    socket.set_nodelay(true)?;
    let until = hub.limits.handshake;
    let tls = hub.tls_config();
    let Some(config) = tls else {
        return serve_http(hub, socket, address, None).await;
    };
    let accepted = timeout(until, TlsAcceptor::from(config).accept(socket)).await;
    let stream = accepted.map_err(|_| HandshakeError::Late)??;
    let certificate = certificate_of(&stream);
    serve_http(hub, stream, address, certificate).await
}

fn certificate_of(stream: &TlsStream<TcpStream>) -> Option<Vec<u8>> {
    let (_, session) = stream.get_ref();
    session.peer_certificates().and_then(<[_]>::first).map(|certificate| certificate.to_vec())
}

async fn serve_http<S: AsyncRead + AsyncWrite + Unpin + 'static>(
    hub: Rc<Hub>,
    stream: S,
    address: SocketAddr,
    certificate: Option<Vec<u8>>,
) -> Result<(), HandshakeError> {
    let limits = &hub.limits;
    let conduct = Rc::new(RefCell::new(Conduct::new(limits.client_ping, Arc::clone(&hub.counters), Instant::now())));
    let transport = Transport::new(stream, Rc::clone(&conduct));
    let window = if hub.knows_clients { CONNECTION_WINDOW_BYTES } else { UNKNOWN_WINDOW_BYTES };
    let handshake = server::Builder::new()
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(window)
        .max_concurrent_streams(limits.calls_per_connection)
        .max_header_list_size(HEADERS_MARGIN * limits.metadata_bytes)
        .max_pending_accept_reset_streams(RESET_CALLS_MAX)
        .max_concurrent_reset_streams(limits.calls_per_connection as usize)
        .handshake::<_, Bytes>(transport);
    let connection = timeout(limits.handshake, handshake).await.map_err(|_| HandshakeError::Late)??;
    let peer = Arc::new(Peer { address: peer_name(address), certificate });
    Connection::new(hub, connection, conduct, peer).run().await;
    Ok(())
}

/// Returns an address in the notation of gRPC.
fn peer_name(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => format!("ipv4:{address}"),
        SocketAddr::V6(address) => match address.ip().to_ipv4_mapped() {
            Some(ip) => format!("ipv4:{ip}:{}", address.port()),
            None => format!("ipv6:{address}"),
        },
    }
}

struct Connection<S> {
    hub: Rc<Hub>,
    http: server::Connection<Transport<S>, Bytes>,
    pings: Option<PingPong>,
    conduct: Rc<RefCell<Conduct>>,
    peer: Arc<Peer>,
    standing: Rc<Standing>,
    calls: Rc<Calls>,
    opened_at: Instant,
    pinged_at: Option<Instant>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + 'static> Connection<S> {
    fn new(
        hub: Rc<Hub>,
        mut http: server::Connection<Transport<S>, Bytes>,
        conduct: Rc<RefCell<Conduct>>,
        peer: Arc<Peer>,
    ) -> Self {
        let now = Instant::now();
        let pings = http.ping_pong();
        let calls = Rc::new(Calls { count: Cell::new(0), idle_since: Cell::new(now) });
        let standing = Rc::new(Standing::new(hub.knows_clients));
        Self { hub, http, pings, conduct, peer, standing, calls, opened_at: now, pinged_at: None }
    }

    async fn run(mut self) {
        let hub = Rc::clone(&self.hub);
        let mut draining = hub.draining();
        let mut is_drained = *draining.borrow_and_update();
        if is_drained {
            self.http.graceful_shutdown();
        }
        let mut timer = Box::pin(sleep(self.next_check(Instant::now())));
        loop {
            tokio::select! {
                accepted = self.http.accept() => match accepted {
                    Some(Ok((request, respond))) => {
                        let client = Client { peer: Arc::clone(&self.peer), standing: Rc::clone(&self.standing) };
                        let call = call::serve(Rc::clone(&hub), client, request, respond);
                        let counted = self.calls.begin();
                        watched::spawn(hub.shared(), async move {
                            call.await;
                            drop(counted);
                        });
                    }
                    // The calls learn from their streams that the connection has ended.
                    Some(Err(error)) => {
                        if error.is_library() {
                            hub.counters.count(Limit::Protocol);
                        }
                        return;
                    }
                    None => return,
                },
                () = &mut timer => {
                    let now = Instant::now();
                    if !self.check(now) {
                        return;
                    }
                    timer = Box::pin(sleep(self.next_check(now)));
                }
                () = self.standing.became_known() => self.http.set_target_window_size(CONNECTION_WINDOW_BYTES),
                _ = draining.changed(), if !is_drained => {
                    is_drained = true;
                    self.http.graceful_shutdown();
                }
            }
        }
    }

    /// Ends the connection if the client is silent, idle or owes a reply; false: it has ended.
    ///
    /// A reason is sent by [`Transport`], when HTTP/2 reads next.
    fn check(&mut self, now: Instant) -> bool {
        let limits = &self.hub.limits;
        let mut conduct = self.conduct.borrow_mut();
        if conduct.farewell.is_some() {
            return false; // the client reads nothing, so it does not get the reason either
        }
        if !conduct.has_settings && now >= self.opened_at + limits.handshake {
            conduct.part(NO_REPLY_TO_SETTINGS);
        } else if self.calls.idle_until(limits).is_some_and(|until| now >= until) {
            conduct.part(IDLE);
        }
        if let Some(pinged_at) = self.pinged_at {
            if conduct.heard_at >= pinged_at {
                self.pinged_at = None;
            } else if now >= pinged_at + limits.ping {
                self.hub.counters.count(Limit::Ping);
                return false;
            }
        }
        if self.pinged_at.is_none() && now >= conduct.heard_at + 2 * limits.ping {
            self.pinged_at = Some(now);
            if let Some(pings) = &mut self.pings {
                // h2 sends the next ping only after it has told of the last reply.
                let _ = pings.poll_pong(&mut Context::from_waker(Waker::noop()));
                // An error means the end of the connection, which the next read reports.
                let _ = pings.send_ping(Ping::opaque());
            }
        }
        true
    }

    /// Returns the time until the next check can find something.
    fn next_check(&self, now: Instant) -> Duration {
        let limits = &self.hub.limits;
        let conduct = self.conduct.borrow();
        let mut next = match self.pinged_at {
            Some(pinged_at) => pinged_at + limits.ping,
            None => conduct.heard_at + 2 * limits.ping,
        };
        if !conduct.has_settings {
            next = next.min(self.opened_at + limits.handshake);
        }
        if let Some(until) = self.calls.idle_until(limits) {
            next = next.min(until);
        } else {
            next = next.min(now + limits.idle);
        }
        next.saturating_duration_since(now).max(Duration::from_millis(1))
    }
}

/// The calls in progress on a connection.
#[derive(Debug)]
struct Calls {
    count: Cell<usize>,
    idle_since: Cell<Instant>,
}

impl Calls {
    fn begin(self: &Rc<Self>) -> CountedCall {
        self.count.set(self.count.get() + 1);
        CountedCall(Rc::clone(self))
    }

    /// Returns when the connection has been idle for too long; `None` with calls in progress.
    fn idle_until(&self, limits: &Limits) -> Option<Instant> {
        (self.count.get() == 0).then(|| self.idle_since.get() + limits.idle)
    }
}

/// A call in progress; counted until dropped.
struct CountedCall(Rc<Calls>);

impl Drop for CountedCall {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get() - 1);
        self.0.idle_since.set(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_the_notation_of_grpc() {
        for (address, name) in [
            ("127.0.0.1:7401", "ipv4:127.0.0.1:7401"),
            ("[::1]:7401", "ipv6:[::1]:7401"),
            ("[::ffff:10.0.0.1]:7", "ipv4:10.0.0.1:7"),
        ] {
            assert_eq!(peer_name(address.parse().unwrap()), name);
        }
    }
}
