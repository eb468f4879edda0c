//! Metadata of calls as headers of HTTP/2, and headers as metadata.
//!
//! The name of binary metadata ends with `-bin`, and HTTP/2 carries their values in base64.

use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose},
};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Accepts base64 with and without padding, as the specification of gRPC requires.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
const BINARY_SUFFIX: &str = "-bin";
/// Headers of the protocol, which are no metadata of the call.
const RESERVED: [&str; 2] = ["te", "content-type"];
const RESERVED_PREFIX: &str = "grpc-";
/// A header of a client with the prefix of the protocol that is metadata all the same.
const TRACE: &str = "grpc-trace-bin";

/// A value of metadata.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Value {
    /// Printable ASCII characters.
    Text(String),
    /// Any bytes; the name of the metadata ends with `-bin`.
    Binary(Vec<u8>),
}

/// Metadata in the order in which they came.
pub type Pairs = Vec<(String, Value)>;

/// Metadata that gRPC does not allow.
#[derive(Debug, Eq, PartialEq)]
pub struct MetadataInvalid(pub String);

/// Returns the metadata in the headers of a request.
///
/// # Errors
///
/// A value is neither printable ASCII nor base64, as its name requires.
pub fn received(headers: &HeaderMap) -> Result<Pairs, MetadataInvalid> {
    let mut pairs = Pairs::with_capacity(headers.len());
    for (name, value) in headers {
        let name = name.as_str();
        if RESERVED.contains(&name) || (name.starts_with(RESERVED_PREFIX) && name != TRACE) {
            continue;
        }
        let invalid = || MetadataInvalid(format!("the value of the metadata {name} is malformed"));
        if name.ends_with(BINARY_SUFFIX) {
            // Clients may join the values of repeated metadata by commas.
            for part in value.as_bytes().split(|byte| *byte == b',') {
                let decoded = LENIENT.decode(part.trim_ascii()).map_err(|_| invalid())?;
                pairs.push((name.to_owned(), Value::Binary(decoded)));
            }
        } else {
            let text = value.to_str().map_err(|_| invalid())?;
            pairs.push((name.to_owned(), Value::Text(text.to_owned())));
        }
    }
    Ok(pairs)
}

/// Adds metadata to the headers of a response.
///
/// # Errors
///
/// HTTP/2 allows a name or a value not.
pub fn append(headers: &mut HeaderMap, pairs: &[(String, Value)]) -> Result<(), MetadataInvalid> {
    for (name, value) in pairs {
        let invalid = || MetadataInvalid(format!("the handler sent invalid metadata {name:?}"));
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
        let value = match value {
            Value::Text(text) => HeaderValue::from_str(text).map_err(|_| invalid())?,
            Value::Binary(bytes) => {
                let encoded = general_purpose::STANDARD_NO_PAD.encode(bytes);
                HeaderValue::from_str(&encoded).map_err(|_| invalid())?
            }
        };
        headers.append(key, value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| ((*name).parse().unwrap(), (*value).parse().unwrap())).collect()
    }

    #[test]
    fn headers_of_the_protocol_are_no_metadata() {
        let found = received(&headers(&[("te", "trailers"), ("grpc-timeout", "1S"), ("authorization", "Bearer x")]));
        assert_eq!(found, Ok(vec![("authorization".into(), Value::Text("Bearer x".into()))]));
    }

    #[test]
    fn binary_metadata_are_decoded_with_and_without_padding() {
        let found = received(&headers(&[("a-bin", "/w"), ("b-bin", "/w=="), ("c-bin", "AA,/w")]));
        let binary = |name: &str, bytes: &[u8]| (name.into(), Value::Binary(bytes.into()));
        let expected =
            vec![binary("a-bin", b"\xff"), binary("b-bin", b"\xff"), binary("c-bin", b"\0"), binary("c-bin", b"\xff")];
        assert_eq!(found, Ok(expected));
    }

    #[test]
    fn malformed_binary_metadata_are_refused() {
        assert!(received(&headers(&[("a-bin", "!")])).is_err());
    }

    #[test]
    fn sent_metadata_are_received_unchanged() {
        let pairs = vec![("x".into(), Value::Text("y".into())), ("z-bin".into(), Value::Binary(vec![0, 255, 7]))];
        let mut sent = HeaderMap::new();
        append(&mut sent, &pairs).unwrap();
        assert_eq!(received(&sent), Ok(pairs));
    }

    #[test]
    fn metadata_with_a_line_break_are_refused() {
        let pairs = [("x".into(), Value::Text("a\nb".into()))];
        assert!(append(&mut HeaderMap::new(), &pairs).is_err());
    }
}
