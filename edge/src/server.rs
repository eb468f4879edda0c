//! The thread of the edge: its listeners, its calls, and the end of service.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    io,
    net::TcpListener as BoundListener,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering::Relaxed},
    thread::{Builder, JoinHandle},
    time::Duration,
};

use rustls::ServerConfig;
use tokio::{
    net::TcpListener,
    runtime,
    sync::{Notify, watch},
    task::{LocalSet, yield_now},
    time::{sleep, timeout},
};

use crate::{
    budget::{Budget, Budgets},
    call::{Kind, Mailbox},
    connection::{self, HandshakeError},
    counters::{Counters, Limit},
    exchange::{CallId, Event, Exchange},
    limits::Limits,
    status::Status,
    watched,
};

/// Wait after a failure to accept a connection, for example without free descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Events that may wait for Python, per call that may be in progress.
const EVENTS_PER_CALL: usize = 8;

/// The methods that a server has, by path.
pub type Methods = HashMap<String, Kind>;

/// The part of a server that other threads may use.
#[derive(Debug)]
pub struct Shared {
    /// The lists of events and commands.
    pub exchange: Exchange,
    /// What the metrics show.
    pub counters: Arc<Counters>,
    tls: Mutex<Option<Arc<ServerConfig>>>,
    stop: watch::Sender<Option<Duration>>,
}

impl Shared {
    /// Returns the shared part of a server without TLS.
    ///
    /// # Errors
    ///
    /// The process has no free file descriptor.
    pub fn new() -> io::Result<Arc<Self>> {
        let (stop, _) = watch::channel(None);
        Ok(Arc::new(Self { exchange: Exchange::new()?, counters: Arc::default(), tls: Mutex::default(), stop }))
    }

    /// Uses certificates for new connections.
    pub fn set_tls(&self, config: Arc<ServerConfig>) {
        *self.tls.lock().unwrap_or_else(PoisonError::into_inner) = Some(config);
    }

    /// Ends service: no further call begins; after `grace` at the latest, the rest is cut off.
    pub fn stop(&self, grace: Duration) {
        self.stop.send_replace(Some(grace));
    }
}

/// Starts the thread that serves the connections of some listeners.
///
/// `knows_clients` means that clients need no authentication.
/// The event [`Event::Stopped`] tells of the end of the thread, and [`Event::Failed`] of a panic.
///
/// # Errors
///
/// The thread or its event loop cannot be created.
pub fn start(
    shared: Arc<Shared>,
    methods: Arc<Methods>,
    limits: Limits,
    knows_clients: bool,
    listeners: Vec<BoundListener>,
) -> io::Result<JoinHandle<()>> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let listeners = {
        let _context = runtime.enter();
        listeners.into_iter().map(TcpListener::from_std).collect::<io::Result<Vec<_>>>()?
    };
    Builder::new().name("taskraft-edge".to_owned()).spawn(move || {
        watched::run(&shared.exchange, || {
            let hub = Rc::new(Hub::new(Arc::clone(&shared), methods, limits, knows_clients));
            LocalSet::new().block_on(&runtime, serve(hub, listeners));
        });
        shared.exchange.announce(Event::Stopped);
    })
}

async fn serve(hub: Rc<Hub>, listeners: Vec<TcpListener>) {
    let accepting: Vec<_> =
        listeners.into_iter().map(|listener| watched::spawn(&hub.shared, accept(Rc::clone(&hub), listener))).collect();
    let dispatching = watched::spawn(&hub.shared, dispatch(Rc::clone(&hub)));
    let ringing = watched::spawn(&hub.shared, ring(Rc::clone(&hub)));
    let mut stop = hub.shared.stop.subscribe();
    let grace = stop.wait_for(Option::is_some).await.map_or(Duration::ZERO, |grace| grace.unwrap_or_default());
    for task in accepting {
        task.abort();
        // Dropping the task closes the listener, so clients connect to another node.
        let _ = task.await;
    }
    hub.draining.send_replace(true);
    let _ = timeout(grace, hub.all_closed()).await;
    dispatching.abort();
    ringing.abort();
}

async fn accept(hub: Rc<Hub>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((socket, address)) => {
                let Some(open) = OpenConnection::count(&hub) else {
                    hub.counters.count(Limit::Connections);
                    continue; // closes the socket
                };
                let serving = Rc::clone(&hub);
                watched::spawn(&hub.shared, async move {
                    // A failed handshake is the fault of the client, which sees the end.
                    if let Err(HandshakeError::Late) = connection::serve(Rc::clone(&serving), socket, address).await {
                        serving.counters.count(Limit::Handshake);
                    }
                    drop(open);
                });
            }
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Wakes Python once for the events of all connections that are ready now.
async fn ring(hub: Rc<Hub>) {
    loop {
        hub.exchange.burst().await;
        // The tasks that are ready now run before this task goes on.
        yield_now().await;
        hub.exchange.ring();
    }
}

async fn dispatch(hub: Rc<Hub>) {
    loop {
        for (call, command) in hub.exchange.commands().await {
            // A call that has ended needs no further command.
            if let Some(mailbox) = hub.calls.borrow().get(&call) {
                mailbox.put(command);
            }
        }
    }
}

/// What the connections and calls of a server share.
#[derive(Debug)]
pub struct Hub {
    shared: Arc<Shared>,
    /// The methods of the server.
    pub methods: Arc<Methods>,
    /// The limits of the server.
    pub limits: Limits,
    /// Whether each client is known from the start.
    pub knows_clients: bool,
    /// Bounds for unfinished messages.
    pub budgets: Rc<Budgets>,
    calls: RefCell<HashMap<CallId, Rc<Mailbox>>>,
    last_call: Cell<CallId>,
    connections: Cell<usize>,
    connection_closed: Notify,
    draining: watch::Sender<bool>,
}

impl std::ops::Deref for Hub {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Hub {
    fn new(shared: Arc<Shared>, methods: Arc<Methods>, limits: Limits, knows_clients: bool) -> Self {
        let counters = &shared.counters;
        let budgets = Rc::new(Budgets {
            unknown: Budget::new(limits.unknown_budget_bytes, Arc::clone(&counters.unknown_bytes)),
            small: Budget::new(limits.small_budget_bytes, Arc::clone(&counters.small_bytes)),
            large: Budget::new(limits.large_budget_bytes, Arc::clone(&counters.large_bytes)),
        });
        Self {
            shared,
            methods,
            limits,
            knows_clients,
            budgets,
            calls: RefCell::default(),
            last_call: Cell::new(0),
            connections: Cell::new(0),
            connection_closed: Notify::new(),
            draining: watch::channel(false).0,
        }
    }

    /// Returns the part of the server that other threads may use.
    #[must_use]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns the settings of TLS for a new connection; `None` without TLS.
    #[must_use]
    pub fn tls_config(&self) -> Option<Arc<ServerConfig>> {
        self.shared.tls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the watch whose value becomes true when the server stops.
    #[must_use]
    pub fn draining(&self) -> watch::Receiver<bool> {
        self.draining.subscribe()
    }

    /// Counts a call that ends with a status of the edge.
    pub fn count(&self, status: &Status) {
        if let Some(limit) = status.limit {
            self.counters.count(limit);
        }
    }

    /// Returns whether Python has not taken events for too long, or too many events wait.
    #[must_use]
    pub fn is_unresponsive(&self) -> bool {
        self.exchange.backlog().waits > self.limits.unresponsive || self.is_full()
    }

    /// Returns whether so much waits for Python that no further message is accepted.
    ///
    /// The events of calls that have ended wait too, so the number of calls in progress is no bound.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let backlog = self.exchange.backlog();
        backlog.events > EVENTS_PER_CALL * self.limits.calls || backlog.bytes > self.limits.small_budget_bytes
    }

    /// Counts a new call; `None` if there are too many.
    #[must_use]
    pub fn permit(self: &Rc<Self>) -> Option<CallPermit> {
        let mut calls = self.calls.borrow_mut();
        if calls.len() >= self.limits.calls {
            return None;
        }
        let id = self.last_call.get() + 1;
        self.last_call.set(id);
        let mailbox = Rc::new(Mailbox::default());
        calls.insert(id, Rc::clone(&mailbox));
        self.counters.calls.store(calls.len(), Relaxed);
        Some(CallPermit { hub: Rc::clone(self), id, mailbox })
    }

    async fn all_closed(&self) {
        while self.connections.get() > 0 {
            self.connection_closed.notified().await;
        }
    }
}

/// A call in progress; counted until dropped.
#[derive(Debug)]
pub struct CallPermit {
    hub: Rc<Hub>,
    /// Number of the call.
    pub id: CallId,
    /// Commands for the call.
    pub mailbox: Rc<Mailbox>,
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        let mut calls = self.hub.calls.borrow_mut();
        calls.remove(&self.id);
        self.hub.counters.calls.store(calls.len(), Relaxed);
    }
}

/// An open connection; counted until dropped.
struct OpenConnection(Rc<Hub>);

impl OpenConnection {
    fn count(hub: &Rc<Hub>) -> Option<Self> {
        let count = hub.connections.get();
        (count < hub.limits.connections).then(|| {
            hub.connections.set(count + 1);
            hub.counters.connections.store(count + 1, Relaxed);
            Self(Rc::clone(hub))
        })
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let count = self.0.connections.get() - 1;
        self.0.connections.set(count);
        self.0.counters.connections.store(count, Relaxed);
        self.0.connection_closed.notify_one();
    }
}
