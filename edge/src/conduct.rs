//! What a client may do on a connection: how often it may ping and reset calls.
//!
//! h2 answers pings and resets itself and reports neither, so [`crate::transport`] counts frames.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::counters::{Counters, Limit};

/// Types of frames of HTTP/2.
pub mod frame {
    /// DATA.
    pub const DATA: u8 = 0;
    /// HEADERS.
    pub const HEADERS: u8 = 1;
    /// `RST_STREAM`.
    pub const RST_STREAM: u8 = 3;
    /// SETTINGS.
    pub const SETTINGS: u8 = 4;
    /// PING.
    pub const PING: u8 = 6;
    /// GOAWAY.
    pub const GOAWAY: u8 = 7;
    /// The error code of a call that was refused before it began.
    pub const REFUSED_STREAM: u8 = 7;
    /// The flag of PING and SETTINGS that marks an answer.
    pub const ACK: u8 = 1;
}

/// Pings that come too early and are tolerated.
const STRIKES_MAX: u32 = 2;
/// Resets and settings of a connection that are tolerated at once.
const RESETS_BURST: f64 = 2_000.0;
/// Resets and settings that are tolerated in each second.
const RESETS_PER_SECOND: f64 = 500.0;

/// The reason with which a connection ends, as the frame GOAWAY names it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Farewell {
    /// Error code of HTTP/2.
    pub code: u32,
    /// Text for people; clients of gRPC compare the text of pings.
    pub text: &'static str,
    /// The limit that the client has reached.
    pub limit: Limit,
}

/// The client pings too often.
pub const TOO_MANY_PINGS: Farewell = Farewell { code: 0xb, text: "too_many_pings", limit: Limit::ClientPing };
/// The client resets calls, or changes settings, too often.
pub const TOO_MANY_RESETS: Farewell = Farewell { code: 0xb, text: "too_many_resets", limit: Limit::Resets };
/// The client does not reply to the settings.
pub const NO_REPLY_TO_SETTINGS: Farewell =
    Farewell { code: 0x4, text: "no reply to SETTINGS", limit: Limit::Handshake };
/// The connection had no call for long.
pub const IDLE: Farewell = Farewell { code: 0, text: "connection idle", limit: Limit::Idle };

/// The conduct of one client on one connection.
#[derive(Debug)]
pub struct Conduct {
    ping_interval: Duration,
    counters: Arc<Counters>,
    last_ping: Option<Instant>,
    strikes: u32,
    resets_left: f64,
    resets_at: Instant,
    /// Whether the client has replied to the settings of the server.
    pub has_settings: bool,
    /// When bytes of the client arrived last.
    pub heard_at: Instant,
    /// The reason why the connection has to end; `None`: it goes on.
    pub farewell: Option<Farewell>,
}

impl Conduct {
    /// Returns the conduct of a client that has just connected; `ping_interval` is the minimum
    /// interval between its pings.
    #[must_use]
    pub fn new(ping_interval: Duration, counters: Arc<Counters>, now: Instant) -> Self {
        Self {
            ping_interval,
            counters,
            last_ping: None,
            strikes: 0,
            resets_left: RESETS_BURST,
            resets_at: now,
            has_settings: false,
            heard_at: now,
            farewell: None,
        }
    }

    /// Counts a frame of the client.
    pub fn received(&mut self, kind: u8, flags: u8, now: Instant) {
        match kind {
            frame::PING if flags & frame::ACK == 0 => self.count_ping(now),
            frame::SETTINGS if flags & frame::ACK != 0 => self.has_settings = true,
            frame::SETTINGS | frame::RST_STREAM => self.count_reset(now),
            _ => {}
        }
    }

    /// Notes a frame of the server: a client that gets data may ping.
    pub fn sent(&mut self, kind: u8) {
        if kind == frame::DATA || kind == frame::HEADERS {
            self.strikes = 0;
            self.last_ping = None;
        }
    }

    /// Notes the last byte of a `RST_STREAM` frame of the server: the end of its error code.
    pub fn sent_reset(&self, last_byte: u8) {
        if last_byte == frame::REFUSED_STREAM {
            self.counters.count(Limit::CallsPerConnection);
        }
    }

    /// Ends the connection with a reason; only the first reason counts.
    pub fn part(&mut self, farewell: Farewell) {
        if self.farewell.is_none() {
            self.counters.count(farewell.limit);
            self.farewell = Some(farewell);
        }
    }

    fn count_ping(&mut self, now: Instant) {
        let is_early = self.last_ping.is_some_and(|last| now.duration_since(last) < self.ping_interval);
        self.last_ping = Some(now);
        self.strikes += u32::from(is_early);
        if self.strikes > STRIKES_MAX {
            self.part(TOO_MANY_PINGS);
        }
    }

    fn count_reset(&mut self, now: Instant) {
        let regained = now.duration_since(self.resets_at).as_secs_f64() * RESETS_PER_SECOND;
        self.resets_at = now;
        self.resets_left = (self.resets_left + regained).min(RESETS_BURST) - 1.0;
        if self.resets_left < 0.0 {
            self.part(TOO_MANY_RESETS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(250);

    fn pinged(conduct: &mut Conduct, at: Instant, times: u32) {
        for _ in 0..times {
            conduct.received(frame::PING, 0, at);
        }
    }

    #[test]
    fn early_pings_end_the_connection() {
        let now = Instant::now();
        let mut conduct = Conduct::new(INTERVAL, Arc::default(), now);
        pinged(&mut conduct, now, 3);
        assert_eq!(conduct.farewell, None);
        pinged(&mut conduct, now, 1);
        assert_eq!(conduct.farewell, Some(TOO_MANY_PINGS));
    }

    #[test]
    fn pings_at_the_interval_are_tolerated() {
        let now = Instant::now();
        let mut conduct = Conduct::new(INTERVAL, Arc::default(), now);
        for number in 0..100 {
            pinged(&mut conduct, now + number * INTERVAL, 1);
        }
        assert_eq!(conduct.farewell, None);
    }

    #[test]
    fn data_forgive_early_pings() {
        let now = Instant::now();
        let mut conduct = Conduct::new(INTERVAL, Arc::default(), now);
        for _ in 0..10 {
            pinged(&mut conduct, now, 3);
            conduct.sent(frame::DATA);
        }
        assert_eq!(conduct.farewell, None);
    }

    #[test]
    fn answers_to_pings_are_no_pings() {
        let now = Instant::now();
        let mut conduct = Conduct::new(INTERVAL, Arc::default(), now);
        for _ in 0..100 {
            conduct.received(frame::PING, frame::ACK, now);
        }
        assert_eq!(conduct.farewell, None);
    }

    #[test]
    fn resets_are_tolerated_at_a_rate() {
        let now = Instant::now();
        let mut conduct = Conduct::new(INTERVAL, Arc::default(), now);
        for _ in 0..2_000 {
            conduct.received(frame::RST_STREAM, 0, now);
        }
        let later = now + Duration::from_secs(1);
        for _ in 0..500 {
            conduct.received(frame::RST_STREAM, 0, later);
        }
        assert_eq!(conduct.farewell, None);
        conduct.received(frame::RST_STREAM, 0, later);
        assert_eq!(conduct.farewell, Some(TOO_MANY_RESETS));
    }
}
