//! Status codes of gRPC, and the status with which the edge itself ends a call.

use std::borrow::Cow;

use http::HeaderValue;
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

use crate::counters::Limit;

/// Characters that a status text has to escape: all except the printable ASCII characters, and `%`.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// Codes of the statuses that the edge decides.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(i32)]
pub enum Code {
    /// The call succeeded.
    Ok = 0,
    /// The deadline of the call is over, or a message stalled.
    DeadlineExceeded = 4,
    /// A limit of the edge is reached.
    ResourceExhausted = 8,
    /// The method or the compression is unknown.
    Unimplemented = 12,
    /// The client broke the rules of gRPC.
    Internal = 13,
    /// The server stops, or its event loop does not respond.
    Unavailable = 14,
}

/// A status with which the edge ends a call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Status {
    /// The code.
    pub code: Code,
    /// The text for people.
    pub text: Cow<'static, str>,
    /// The limit that the call has reached, if the status is because of a limit.
    pub limit: Option<Limit>,
}

impl Status {
    /// Returns a status.
    pub fn new(code: Code, text: impl Into<Cow<'static, str>>) -> Self {
        Self { code, text: text.into(), limit: None }
    }

    /// Returns the status of a call that has reached a limit.
    pub fn at(limit: Limit, code: Code, text: impl Into<Cow<'static, str>>) -> Self {
        Self { limit: Some(limit), ..Self::new(code, text) }
    }
}

/// Returns the text of a status as the value of the header `grpc-message`.
#[must_use]
pub fn text_header(text: &str) -> HeaderValue {
    let escaped = percent_encode(text.as_bytes(), ESCAPED).to_string();
    HeaderValue::from_str(&escaped).expect("escaped text has only printable ASCII characters")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_escaped() {
        assert_eq!(text_header("50 % of \u{e4}\n"), "50 %25 of %C3%A4%0A");
    }
}
