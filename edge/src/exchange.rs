//! The two lists between the thread of the edge and the event loop of Python.
//!
//! Events go to Python. An eventfd wakes the event loop once for the events of one burst: those that
//! the thread finds before it looks at its sockets again.
//! Commands come back in one list for each turn of the event loop.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use rustix::event::{EventfdFlags, eventfd};
use tokio::sync::Notify;

use crate::metadata::Pairs;

/// Number of a call; the edge never uses a number twice.
pub type CallId = u64;

/// The other end of a connection.
#[derive(Debug)]
pub struct Peer {
    /// Address in the notation of gRPC, for example `ipv4:127.0.0.1:7401`.
    pub address: String,
    /// The client's certificate in DER, if the client has one.
    pub certificate: Option<Vec<u8>>,
}

/// What happened to a call.
#[derive(Debug)]
pub enum Event {
    /// A call began.
    Opened {
        /// The call.
        call: CallId,
        /// Path of the method.
        path: String,
        /// Metadata of the call.
        metadata: Pairs,
        /// Time until the deadline.
        timeout: Option<Duration>,
        /// The client.
        peer: Arc<Peer>,
        /// Whether Python has authenticated a call of the connection before.
        is_known: bool,
        /// The request. `None`: the handler reads the messages of the call.
        message: Option<Bytes>,
    },
    /// A message of a call whose handler reads the messages.
    Message(CallId, Bytes),
    /// A message arrives that is received only if the handler demands it.
    Large(CallId),
    /// The client sends no further message.
    HalfClosed(CallId),
    /// So many bytes of the messages of the handler were accepted by flow control.
    Sent(CallId, usize),
    /// The client or the deadline has ended the call.
    Cancelled(CallId),
    /// The thread has a bug, with the text of the panic. Python must stop the server.
    Failed(String),
    /// The thread has ended; no event follows.
    Stopped,
}

impl Event {
    fn message_bytes(&self) -> usize {
        match self {
            Self::Opened { message, .. } => message.as_ref().map_or(0, Bytes::len),
            Self::Message(_, message) => message.len(),
            _ => 0,
        }
    }
}

/// What the handler of a call wants.
#[derive(Debug)]
pub enum Command {
    /// Send metadata before the first message.
    Initial(Pairs),
    /// Send a message.
    Message(Bytes),
    /// Note that the handler has read so many messages and bytes.
    Read(usize, usize),
    /// Receive the next message, whatever its size.
    Demand,
    /// End the call.
    Finish(Ending),
    /// Report sent bytes at once, until no message waits.
    Flush,
    /// Note that the caller was authenticated, so the client of the connection is known.
    Known,
}

/// The end of a call.
#[derive(Debug)]
pub struct Ending {
    /// Code of the status.
    pub code: i32,
    /// Text of the status.
    pub text: String,
    /// Trailing metadata.
    pub metadata: Pairs,
    /// A last message before the status.
    pub answer: Option<Bytes>,
}

/// The events that wait for Python.
#[derive(Debug, Default)]
struct Waiting {
    events: Vec<Event>,
    /// Bytes of the messages.
    bytes: usize,
    /// When the first event came; `None` without events.
    since: Option<Instant>,
    /// Whether the descriptor is readable.
    is_rung: bool,
}

/// How far Python is behind.
#[derive(Clone, Copy, Debug)]
pub struct Backlog {
    /// Events that wait.
    pub events: usize,
    /// Bytes of their messages.
    pub bytes: usize,
    /// Time for which the first event has waited.
    pub waits: Duration,
}

/// The two lists.
#[derive(Debug)]
pub struct Exchange {
    waiting: Mutex<Waiting>,
    wake_up: OwnedFd,
    burst_began: Notify,
    commands: Mutex<Vec<(CallId, Command)>>,
    commands_came: Notify,
}

impl Exchange {
    /// Returns empty lists.
    ///
    /// # Errors
    ///
    /// The process has no free file descriptor.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            waiting: Mutex::default(),
            wake_up: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
            burst_began: Notify::new(),
            commands: Mutex::default(),
            commands_came: Notify::new(),
        })
    }

    /// Returns the descriptor that is readable while events wait.
    #[must_use]
    pub fn descriptor(&self) -> RawFd {
        self.wake_up.as_raw_fd()
    }

    /// Adds an event for Python, which [`Exchange::ring`] announces.
    pub fn report(&self, event: Event) {
        let mut waiting = held(&self.waiting);
        if waiting.events.is_empty() {
            waiting.since = Some(Instant::now());
            self.burst_began.notify_one();
        }
        waiting.bytes += event.message_bytes();
        waiting.events.push(event);
    }

    /// Adds an event for Python and announces it at once.
    pub fn announce(&self, event: Event) {
        self.report(event);
        self.ring();
    }

    /// Waits for the first event after [`Exchange::take_events`].
    pub async fn burst(&self) {
        self.burst_began.notified().await;
    }

    /// Makes the descriptor readable if events wait.
    pub fn ring(&self) {
        let mut waiting = held(&self.waiting);
        if !waiting.events.is_empty() && !waiting.is_rung {
            waiting.is_rung = true;
            // The counter of the eventfd cannot overflow: it is 0, because `is_rung` was false.
            rustix::io::write(&self.wake_up, &1_u64.to_ne_bytes()).expect("an eventfd accepts a small number");
        }
    }

    /// Returns how far Python is behind.
    pub fn backlog(&self) -> Backlog {
        let waiting = held(&self.waiting);
        let waits = waiting.since.map_or(Duration::ZERO, |since| since.elapsed());
        Backlog { events: waiting.events.len(), bytes: waiting.bytes, waits }
    }

    /// Takes all events; the descriptor is not readable until the next [`Exchange::ring`].
    pub fn take_events(&self) -> Vec<Event> {
        let mut waiting = held(&self.waiting);
        if waiting.is_rung {
            rustix::io::read(&self.wake_up, &mut [0_u8; 8]).expect("the eventfd was written");
        }
        std::mem::take(&mut *waiting).events
    }

    /// Adds commands for calls.
    pub fn command(&self, commands: Vec<(CallId, Command)>) {
        held(&self.commands).extend(commands);
        self.commands_came.notify_one();
    }

    /// Waits for commands and takes them.
    pub async fn commands(&self) -> Vec<(CallId, Command)> {
        loop {
            let commands = std::mem::take(&mut *held(&self.commands));
            if !commands.is_empty() {
                return commands;
            }
            self.commands_came.notified().await;
        }
    }
}

/// Locks a list. A panic while the list was locked leaves a complete list, so it stays usable.
fn held<T>(list: &Mutex<T>) -> MutexGuard<'_, T> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn is_readable(exchange: &Exchange) -> bool {
        let mut descriptors = [PollFd::new(&exchange.wake_up, PollFlags::IN)];
        poll(&mut descriptors, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    #[test]
    fn the_descriptor_is_readable_while_events_wait() {
        let exchange = Exchange::new().unwrap();
        assert!(!is_readable(&exchange));
        exchange.ring();
        assert!(!is_readable(&exchange));
        exchange.report(Event::Cancelled(1));
        exchange.report(Event::Cancelled(2));
        assert!(!is_readable(&exchange));
        exchange.ring();
        exchange.ring();
        assert!(is_readable(&exchange));
        assert_eq!(exchange.take_events().len(), 2);
        assert!(!is_readable(&exchange));
        assert!(exchange.take_events().is_empty());
        exchange.announce(Event::Stopped);
        assert!(is_readable(&exchange));
    }

    #[tokio::test]
    async fn the_first_event_of_each_burst_is_noticed() {
        let exchange = Exchange::new().unwrap();
        for _ in 0..2 {
            exchange.report(Event::Cancelled(1));
            exchange.report(Event::Cancelled(2));
            exchange.burst().await;
            assert_eq!(exchange.take_events().len(), 2);
        }
    }

    #[test]
    fn the_backlog_grows_until_the_events_are_taken() {
        let exchange = Exchange::new().unwrap();
        exchange.report(Event::Message(1, Bytes::from_static(b"task")));
        exchange.report(Event::Cancelled(1));
        let backlog = exchange.backlog();
        assert_eq!((backlog.events, backlog.bytes), (2, 4));
        assert!(exchange.backlog().waits >= backlog.waits);
        exchange.take_events();
        let backlog = exchange.backlog();
        assert_eq!((backlog.events, backlog.bytes, backlog.waits), (0, 0, Duration::ZERO));
    }

    #[tokio::test]
    async fn commands_arrive_in_their_order() {
        let exchange = Exchange::new().unwrap();
        exchange.command(vec![(1, Command::Demand)]);
        exchange.command(vec![(2, Command::Demand)]);
        let calls: Vec<_> = exchange.commands().await.into_iter().map(|(call, _)| call).collect();
        assert_eq!(calls, [1, 2]);
    }
}
