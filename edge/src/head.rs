//! The head of a call: what the headers of a request say.

use std::time::Duration;

use http::{Method, StatusCode, header, request::Parts};

use crate::{
    compression::{self, Compression},
    counters::Limit,
    metadata::{self, MetadataInvalid, Pairs},
    status::{Code, Status},
};

const CONTENT_TYPE: &[u8] = b"application/grpc";
/// What HTTP/2 adds to the name and the value of a header.
const HEADER_BYTES: usize = 32;
/// A longer timeout means no deadline; it also keeps the arithmetic of instants in range.
const TIMEOUT_MAX: Duration = Duration::from_hours(100 * 365 * 24);

/// The head of a call.
#[derive(Debug)]
pub struct Head {
    /// The path, which names the method.
    pub path: String,
    /// Time until the deadline, from the arrival of the head; `None` without a deadline.
    pub timeout: Option<Duration>,
    /// Compression of the messages of the client.
    pub compression: Compression,
    /// The metadata of the call.
    pub metadata: Pairs,
}

/// Why a request is refused before a handler sees it.
#[derive(Debug)]
pub enum HeadRefused {
    /// The request is no call of gRPC; it is answered with a status of HTTP.
    NoCall(StatusCode),
    /// The call is answered with a status of gRPC.
    Refused(Status),
}

impl From<MetadataInvalid> for HeadRefused {
    fn from(error: MetadataInvalid) -> Self {
        Self::Refused(Status::new(Code::Internal, error.0))
    }
}

impl Head {
    /// Reads the head of a call; `bytes_max` is the maximum size of the headers.
    ///
    /// # Errors
    ///
    /// The request is no call of gRPC, or breaks its rules.
    pub fn read(parts: &Parts, bytes_max: usize) -> Result<Self, HeadRefused> {
        let content_type = parts.headers.get(header::CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
        let is_grpc = content_type
            .strip_prefix(CONTENT_TYPE)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"+") || rest.starts_with(b";"));
        if !is_grpc {
            return Err(HeadRefused::NoCall(StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
        if parts.method != Method::POST {
            return Err(HeadRefused::NoCall(StatusCode::METHOD_NOT_ALLOWED));
        }
        if headers_bytes(parts) > bytes_max {
            let text = format!("the metadata of the call have more than {bytes_max} bytes");
            return Err(HeadRefused::Refused(Status::at(Limit::Metadata, Code::ResourceExhausted, text)));
        }
        Ok(Self {
            path: parts.uri.path().to_owned(),
            timeout: timeout(parts)?,
            compression: announced_compression(parts)?,
            metadata: metadata::received(&parts.headers)?,
        })
    }
}

/// Returns the size of the headers as HTTP/2 counts, without the pseudo headers.
fn headers_bytes(parts: &Parts) -> usize {
    parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + HEADER_BYTES).sum()
}

fn announced_compression(parts: &Parts) -> Result<Compression, HeadRefused> {
    let Some(name) = parts.headers.get("grpc-encoding") else {
        return Ok(Compression::Identity);
    };
    Compression::named(name.as_bytes()).ok_or_else(|| {
        let text = format!("the compression {name:?} is not supported; supported are {}", compression::ACCEPTED);
        HeadRefused::Refused(Status::new(Code::Unimplemented, text))
    })
}

fn timeout(parts: &Parts) -> Result<Option<Duration>, HeadRefused> {
    let Some(value) = parts.headers.get("grpc-timeout") else {
        return Ok(None);
    };
    let parsed = parse_timeout(value.as_bytes());
    let malformed = || HeadRefused::Refused(Status::new(Code::Internal, format!("the timeout {value:?} is malformed")));
    parsed.ok_or_else(malformed).map(|timeout| (timeout <= TIMEOUT_MAX).then_some(timeout))
}

/// Reads a timeout: at most eight digits and a unit.
fn parse_timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let amount: u64 = str::from_utf8(digits).ok()?.parse().ok()?;
    match unit {
        b'H' => Some(Duration::from_secs(amount * 3600)),
        b'M' => Some(Duration::from_secs(amount * 60)),
        b'S' => Some(Duration::from_secs(amount)),
        b'm' => Some(Duration::from_millis(amount)),
        b'u' => Some(Duration::from_micros(amount)),
        b'n' => Some(Duration::from_nanos(amount)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn read(headers: &[(&str, &str)]) -> Result<Head, HeadRefused> {
        let mut request = Request::builder().method(Method::POST).uri("http://host/a.B/C");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Head::read(&request.body(()).unwrap().into_parts().0, 1_000)
    }

    #[test]
    fn a_head_names_its_method_and_deadline() {
        let head = read(&[("content-type", "application/grpc+proto"), ("grpc-timeout", "1500m")]).unwrap();
        assert_eq!((head.path.as_str(), head.timeout), ("/a.B/C", Some(Duration::from_millis(1500))));
    }

    #[test]
    fn another_content_type_is_no_call() {
        for content_type in ["text/html", "application/grpc-web"] {
            assert!(matches!(read(&[("content-type", content_type)]), Err(HeadRefused::NoCall(_))));
        }
    }

    #[test]
    fn long_headers_are_refused() {
        let refused = read(&[("content-type", "application/grpc"), ("x", &"y".repeat(1_000))]);
        assert!(matches!(refused, Err(HeadRefused::Refused(Status { code: Code::ResourceExhausted, .. }))));
    }

    #[test]
    fn an_unknown_compression_is_refused_with_the_known_ones() {
        let refused = read(&[("content-type", "application/grpc"), ("grpc-encoding", "br")]);
        let Err(HeadRefused::Refused(status)) = refused else { panic!("{refused:?}") };
        assert_eq!(status.code, Code::Unimplemented);
        assert!(status.text.contains("gzip"));
    }

    #[test]
    fn timeouts_have_up_to_eight_digits_and_a_unit() {
        assert_eq!(parse_timeout(b"99999999H"), Some(Duration::from_hours(99_999_999)));
        for malformed in [&b""[..], b"S", b"1", b"-1S", b"123456789S", b"1x"] {
            assert_eq!(parse_timeout(malformed), None);
        }
    }

    #[test]
    fn a_timeout_of_centuries_is_no_deadline() {
        let head = read(&[("content-type", "application/grpc"), ("grpc-timeout", "99999999H")]).unwrap();
        assert_eq!(head.timeout, None);
    }
}
