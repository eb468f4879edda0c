//! Whether the client of a connection is known, which decides what the connection may hold.

use std::cell::Cell;

use tokio::sync::Notify;

/// The standing of the client of one connection.
///
/// A client is unknown until Python has authenticated a call of the connection.
#[derive(Debug)]
pub struct Standing {
    is_known: Cell<bool>,
    became_known: Notify,
}

impl Standing {
    /// Returns the standing of a new connection.
    #[must_use]
    pub fn new(is_known: bool) -> Self {
        Self { is_known: Cell::new(is_known), became_known: Notify::new() }
    }

    /// Returns whether the client is known.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.is_known.get()
    }

    /// Notes that Python has authenticated a call of the connection.
    pub fn note_known(&self) {
        if !self.is_known.replace(true) {
            self.became_known.notify_one();
        }
    }

    /// Waits until an unknown client becomes known.
    pub async fn became_known(&self) {
        self.became_known.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_client_becomes_known_once() {
        let standing = Standing::new(false);
        assert!(!standing.is_known());
        standing.note_known();
        standing.note_known();
        standing.became_known().await;
        assert!(standing.is_known());
    }
}
