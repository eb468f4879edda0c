//! The class `Edge`, with which Python starts a server and exchanges events and commands.

// PyO3 gives arguments by value.
#![allow(clippy::needless_pass_by_value)]

use std::{
    collections::HashMap,
    net::TcpListener,
    os::fd::RawFd,
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use bytes::Bytes;
use pyo3::{
    exceptions::{PyRuntimeError, PyValueError},
    prelude::*,
    types::{PyBytes, PyString, PyTuple},
};

use crate::{
    call::Kind,
    exchange::{Command, Ending, Event},
    limits::Limits,
    listener,
    metadata::{Pairs, Value},
    server::{self, Methods, Shared},
    tls,
};

/// Kinds of events, the first item of each event.
mod event {
    pub const OPENED: u8 = 0;
    pub const MESSAGE: u8 = 1;
    pub const LARGE: u8 = 2;
    pub const HALF_CLOSED: u8 = 3;
    pub const SENT: u8 = 4;
    pub const CANCELLED: u8 = 5;
    pub const STOPPED: u8 = 6;
    pub const FAILED: u8 = 7;
}

/// A server on one port.
#[pyclass(frozen)]
struct Edge {
    shared: Arc<Shared>,
    methods: Arc<Methods>,
    limits: Limits,
    knows_clients: bool,
    listeners: Mutex<Vec<TcpListener>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[pymethods]
impl Edge {
    /// Creates a server that does not listen yet.
    ///
    /// `methods` maps the path of each method to whether its handler reads the requests itself.
    /// `limits` has one number for each field of `Limits`; times are in ms. `knows_clients` means that
    /// clients are known from the start, because the node authenticates nobody.
    #[new]
    fn new(methods: HashMap<String, bool>, limits: HashMap<String, u64>, knows_clients: bool) -> PyResult<Self> {
        let kind = |reads| if reads { Kind::ManyRequests } else { Kind::OneRequest };
        Ok(Self {
            shared: Shared::new()?,
            methods: Arc::new(methods.into_iter().map(|(path, reads)| (path, kind(reads))).collect()),
            limits: limits_of(&limits)?,
            knows_clients,
            listeners: Mutex::default(),
            thread: Mutex::default(),
        })
    }

    /// Binds the server to `host:port` and returns the port.
    fn listen(&self, address: &str) -> PyResult<u16> {
        let listeners = listener::listen(address)?;
        let first = listeners.first().expect("no error without an address");
        let port = first.local_addr()?.port();
        *held(&self.listeners) = listeners;
        Ok(port)
    }

    /// Uses a certificate for new connections; all arguments are PEM.
    #[pyo3(signature = (chain, key, authority))]
    fn set_tls(&self, chain: &[u8], key: &[u8], authority: Option<&[u8]>) -> PyResult<()> {
        let config =
            tls::server_config(chain, key, authority).map_err(|error| PyValueError::new_err(error.to_string()))?;
        self.shared.set_tls(config);
        Ok(())
    }

    /// Starts the thread.
    fn start(&self) -> PyResult<()> {
        let listeners = std::mem::take(&mut *held(&self.listeners));
        if listeners.is_empty() {
            return Err(PyRuntimeError::new_err("the server does not listen"));
        }
        let thread = server::start(
            Arc::clone(&self.shared),
            Arc::clone(&self.methods),
            self.limits.clone(),
            self.knows_clients,
            listeners,
        )?;
        *held(&self.thread) = Some(thread);
        Ok(())
    }

    /// Returns the descriptor that is readable while events wait.
    fn fileno(&self) -> RawFd {
        self.shared.exchange.descriptor()
    }

    /// Returns how often each limit has acted, by its name.
    fn limited(&self) -> HashMap<&'static str, u64> {
        self.shared.counters.acted().collect()
    }

    /// Returns the connections, calls and bytes of unfinished messages that are held now.
    fn in_use(&self) -> HashMap<&'static str, usize> {
        self.shared.counters.in_use().into()
    }

    /// Takes all events.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        self.shared.exchange.take_events().into_iter().map(|event| event_tuple(py, event)).collect()
    }

    /// Sends commands to calls.
    fn send(&self, commands: Vec<Bound<'_, PyTuple>>) -> PyResult<()> {
        let commands = commands.iter().map(command_of).collect::<PyResult<_>>()?;
        self.shared.exchange.command(commands);
        Ok(())
    }

    /// Ends service within `grace_seconds`; the event STOPPED follows.
    fn stop(&self, grace_seconds: f64) -> PyResult<()> {
        let grace =
            Duration::try_from_secs_f64(grace_seconds).map_err(|error| PyValueError::new_err(error.to_string()))?;
        held(&self.listeners).clear();
        self.shared.stop(grace);
        Ok(())
    }

    /// Waits for the end of the thread, after STOPPED.
    fn join(&self, py: Python) -> PyResult<()> {
        let thread = held(&self.thread).take();
        match thread {
            None => Ok(()),
            Some(thread) => {
                py.detach(|| thread.join()).map_err(|_| PyRuntimeError::new_err("the thread of the edge failed"))
            }
        }
    }
}

fn held<T>(value: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

fn limits_of(limits: &HashMap<String, u64>) -> PyResult<Limits> {
    let number =
        |name: &str| limits.get(name).copied().ok_or_else(|| PyValueError::new_err(format!("no limit {name}")));
    let size = |name: &str| Ok::<_, PyErr>(usize::try_from(number(name)?)?);
    let small = |name: &str| Ok::<_, PyErr>(u32::try_from(number(name)?)?);
    let time = |name: &str| Ok::<_, PyErr>(Duration::from_millis(number(name)?));
    Ok(Limits {
        calls: size("calls_max")?,
        connections: size("connections_max")?,
        calls_per_connection: small("calls_per_connection_max")?,
        metadata_bytes: small("metadata_bytes_max")?,
        received_bytes: size("received_bytes_max")?,
        sent_bytes: size("sent_bytes_max")?,
        ping: time("ping_ms")?,
        client_ping: time("client_ping_ms_min")?,
        handshake: time("handshake_ms")?,
        idle: time("idle_ms")?,
        stall: time("stall_ms")?,
        unresponsive: time("unresponsive_ms")?,
        unknown_budget_bytes: size("unfinished_unknown_bytes_max")?,
        small_budget_bytes: size("unfinished_small_bytes_max")?,
        large_budget_bytes: size("unfinished_bytes_max")?,
    })
}

fn event_tuple(py: Python<'_>, event: Event) -> PyResult<Bound<'_, PyTuple>> {
    match event {
        Event::Opened { call, path, metadata, timeout, peer, is_known, message } => (
            event::OPENED,
            call,
            path,
            metadata_tuple(py, metadata)?,
            timeout.map(|timeout| timeout.as_secs_f64()),
            PyString::new(py, &peer.address),
            peer.certificate.as_ref().map(|der| PyBytes::new(py, der)),
            is_known,
            message.map(|message| PyBytes::new(py, &message)),
        )
            .into_pyobject(py),
        Event::Message(call, message) => (event::MESSAGE, call, PyBytes::new(py, &message)).into_pyobject(py),
        Event::Large(call) => (event::LARGE, call).into_pyobject(py),
        Event::HalfClosed(call) => (event::HALF_CLOSED, call).into_pyobject(py),
        Event::Sent(call, bytes) => (event::SENT, call, bytes).into_pyobject(py),
        Event::Cancelled(call) => (event::CANCELLED, call).into_pyobject(py),
        Event::Stopped => (event::STOPPED, 0_u64).into_pyobject(py),
        Event::Failed(text) => (event::FAILED, 0_u64, text).into_pyobject(py),
    }
}

fn metadata_tuple(py: Python<'_>, metadata: Pairs) -> PyResult<Bound<'_, PyTuple>> {
    let pairs = metadata.into_iter().map(|(name, value)| match value {
        Value::Text(text) => (name, text).into_pyobject(py),
        Value::Binary(bytes) => (name, PyBytes::new(py, &bytes)).into_pyobject(py),
    });
    PyTuple::new(py, pairs.collect::<PyResult<Vec<_>>>()?)
}

/// Returns the command in a tuple of its kind, its call and its arguments.
fn command_of(command: &Bound<'_, PyTuple>) -> PyResult<(u64, Command)> {
    let argument = |index| command.get_item(index);
    let command_kind: u8 = argument(0)?.extract()?;
    let call = argument(1)?.extract()?;
    let command = match command_kind {
        0 => Command::Initial(pairs_of(&argument(2)?)?),
        1 => Command::Message(bytes_of(&argument(2)?)?),
        2 => Command::Read(argument(2)?.extract()?, argument(3)?.extract()?),
        3 => Command::Demand,
        4 => {
            let answer = argument(5)?;
            Command::Finish(Ending {
                code: argument(2)?.extract()?,
                text: argument(3)?.extract()?,
                metadata: pairs_of(&argument(4)?)?,
                answer: if answer.is_none() { None } else { Some(bytes_of(&answer)?) },
            })
        }
        5 => Command::Flush,
        6 => Command::Known,
        _ => return Err(PyValueError::new_err(format!("there is no command {command_kind}"))),
    };
    Ok((call, command))
}

fn bytes_of(object: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    Ok(Bytes::copy_from_slice(object.cast::<PyBytes>()?.as_bytes()))
}

fn pairs_of(object: &Bound<'_, PyAny>) -> PyResult<Pairs> {
    object
        .try_iter()?
        .map(|pair| {
            let (name, value): (String, Bound<'_, PyAny>) = pair?.extract()?;
            let value = match value.cast::<PyBytes>() {
                Ok(bytes) => Value::Binary(bytes.as_bytes().to_vec()),
                Err(_) => Value::Text(value.extract()?),
            };
            Ok((name, value))
        })
        .collect()
}

/// The native edge; see `taskraft_service.api.rpc.native_server`.
#[pymodule]
mod taskraft_edge {
    #[pymodule_export]
    use super::Edge;
}
