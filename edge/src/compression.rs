//! The compressions of messages that clients may use.

use std::io::{Read, Result};

use flate2::read::{GzDecoder, ZlibDecoder};

/// Names of the compressions, as the header `grpc-accept-encoding` lists them.
pub const ACCEPTED: &str = "identity, deflate, gzip";

/// A compression that a client announces for its messages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Compression {
    /// Messages are not compressed.
    Identity,
    /// The format of zlib.
    Deflate,
    /// The format of gzip.
    Gzip,
}

impl Compression {
    /// Returns the compression of a name; `None` if the edge does not know the name.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"identity" => Some(Self::Identity),
            b"deflate" => Some(Self::Deflate),
            b"gzip" => Some(Self::Gzip),
            _ => None,
        }
    }

    /// Decompresses a message; returns at most one byte more than `bytes_max`, so that the caller
    /// sees that a message is too large without holding all of it.
    ///
    /// # Errors
    ///
    /// The message is malformed.
    pub fn decompress(self, message: &[u8], bytes_max: usize) -> Result<Vec<u8>> {
        let mut whole = Vec::new();
        let bound = bytes_max as u64 + 1;
        match self {
            Self::Identity => message.take(bound).read_to_end(&mut whole)?,
            Self::Deflate => ZlibDecoder::new(message).take(bound).read_to_end(&mut whole)?,
            Self::Gzip => GzDecoder::new(message).take(bound).read_to_end(&mut whole)?,
        };
        Ok(whole)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression as Level, write::GzEncoder};

    use super::*;

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Level::default());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_message_is_decompressed() {
        assert_eq!(Compression::Gzip.decompress(&gzip(b"task"), 10).unwrap(), b"task");
    }

    #[test]
    fn a_bomb_is_decompressed_up_to_the_limit() {
        let bomb = gzip(&vec![0; 1 << 20]);
        assert_eq!(Compression::Gzip.decompress(&bomb, 100).unwrap().len(), 101);
    }

    #[test]
    fn a_malformed_message_is_an_error() {
        assert!(Compression::Gzip.decompress(b"task", 10).is_err());
    }
}
