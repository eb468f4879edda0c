//! The bytes of a connection, between TLS and HTTP/2.
//!
//! The transport counts the frames of both directions. When the connection has to end, it sends a
//! GOAWAY with the reason, which h2 cannot do, and then reports the end to h2 as a lost connection.

use std::{
    cell::RefCell,
    io,
    ops::Range,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Instant,
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{
    authority::mend,
    conduct::{Conduct, Farewell, frame},
};

/// What every client sends first.
const PREFACE_BYTES: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
const HEAD_BYTES: usize = 9;

/// A part of a frame.
enum Part {
    /// The head is complete.
    Head { kind: u8, flags: u8 },
    /// Bytes of the payload, as a range of the bytes that are looked at.
    Payload { kind: u8, bytes: Range<usize> },
}

/// Finds the frames in a stream of bytes.
#[derive(Debug)]
struct FrameTracker {
    head: [u8; HEAD_BYTES],
    filled: usize,
    /// Bytes before the next head.
    skipped: usize,
}

impl FrameTracker {
    fn new(skipped: usize) -> Self {
        Self { head: [0; HEAD_BYTES], filled: 0, skipped }
    }

    fn is_between_frames(&self) -> bool {
        self.filled == 0 && self.skipped == 0
    }

    /// Calls `found` with each part of a frame in the bytes.
    fn feed(&mut self, mut bytes: &[u8], mut found: impl FnMut(Part)) {
        let mut offset = 0;
        while !bytes.is_empty() {
            let skipped = self.skipped.min(bytes.len());
            if skipped > 0 {
                let [.., kind, _, _, _, _, _] = self.head;
                found(Part::Payload { kind, bytes: offset..offset + skipped });
            }
            self.skipped -= skipped;
            bytes = &bytes[skipped..];
            offset += skipped;
            let taken = (HEAD_BYTES - self.filled).min(bytes.len());
            self.head[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            bytes = &bytes[taken..];
            offset += taken;
            if self.filled == HEAD_BYTES {
                let [high, middle, low, kind, flags, ..] = self.head;
                self.skipped = u32::from_be_bytes([0, high, middle, low]) as usize;
                self.filled = 0;
                found(Part::Head { kind, flags });
            }
        }
    }
}

/// A connection whose frames are counted.
#[derive(Debug)]
pub struct Transport<S> {
    inner: S,
    conduct: Rc<RefCell<Conduct>>,
    incoming: FrameTracker,
    outgoing: FrameTracker,
}

impl<S> Transport<S> {
    /// Returns the transport of a new connection.
    pub fn new(inner: S, conduct: Rc<RefCell<Conduct>>) -> Self {
        Self { inner, conduct, incoming: FrameTracker::new(PREFACE_BYTES), outgoing: FrameTracker::new(0) }
    }
}

impl<S: AsyncWrite + Unpin> Transport<S> {
    /// Sends the reason of the end as far as the connection accepts it at once, and returns the end
    /// of the connection.
    fn part(&mut self, context: &mut Context, farewell: Farewell) -> io::Error {
        if self.outgoing.is_between_frames() {
            // The client is at fault, so nothing waits for the client to accept the frame.
            let _ = Pin::new(&mut self.inner).poll_write(context, &go_away(farewell));
            let _ = Pin::new(&mut self.inner).poll_flush(context);
        }
        io::Error::new(io::ErrorKind::ConnectionAborted, farewell.text)
    }
}

/// Returns the frame GOAWAY with a reason.
fn go_away(farewell: Farewell) -> Vec<u8> {
    // No call counts as refused: a client repeats calls above the last stream on a new connection.
    let last_stream = 0x7fff_ffff_u32;
    let length = u32::try_from(8 + farewell.text.len()).expect("a short text");
    let mut whole = length.to_be_bytes()[1..].to_vec();
    whole.extend([frame::GOAWAY, 0, 0, 0, 0, 0]);
    whole.extend(last_stream.to_be_bytes());
    whole.extend(farewell.code.to_be_bytes());
    whole.extend(farewell.text.as_bytes());
    whole
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Transport<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context, buffer: &mut ReadBuf) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.inner).poll_read(context, buffer);
        let fresh = &mut buffer.filled_mut()[before..];
        let mut conduct = this.conduct.borrow_mut();
        if !fresh.is_empty() {
            let now = Instant::now();
            let mut headers = Vec::new();
            conduct.heard_at = now;
            this.incoming.feed(fresh, |part| match part {
                Part::Head { kind, flags } => conduct.received(kind, flags, now),
                Part::Payload { kind: frame::HEADERS, bytes } => headers.push(bytes),
                Part::Payload { .. } => {}
            });
            for bytes in headers {
                mend(&mut fresh[bytes]);
            }
        }
        let farewell = conduct.farewell;
        drop(conduct);
        match farewell {
            Some(farewell) => Poll::Ready(Err(this.part(context, farewell))),
            None => read,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Transport<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let written = ready!(Pin::new(&mut this.inner).poll_write(context, bytes))?;
        let mut conduct = this.conduct.borrow_mut();
        this.outgoing.feed(&bytes[..written], |part| match part {
            Part::Head { kind, .. } => conduct.sent(kind),
            Part::Payload { kind: frame::RST_STREAM, bytes: part } => conduct.sent_reset(bytes[part.end - 1]),
            Part::Payload { .. } => {}
        });
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    const PING: [u8; 17] = [0, 0, 8, frame::PING, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    #[test]
    fn frames_are_found_in_pieces_of_any_size() {
        let stream = [&[9; PREFACE_BYTES][..], &PING, &PING].concat();
        for size in 1..stream.len() {
            let mut tracker = FrameTracker::new(PREFACE_BYTES);
            let mut pings = 0;
            for piece in stream.chunks(size) {
                tracker.feed(piece, |part| {
                    pings += u32::from(matches!(part, Part::Head { kind: frame::PING, .. }));
                });
            }
            assert_eq!((pings, tracker.is_between_frames()), (2, true));
        }
    }

    #[tokio::test]
    async fn a_connection_ends_with_the_reason() {
        let (mut client, server) = duplex(4096);
        let conduct =
            Rc::new(RefCell::new(Conduct::new(Duration::from_secs(1), std::sync::Arc::default(), Instant::now())));
        let mut transport = Transport::new(server, conduct);
        client.write_all(&[0; PREFACE_BYTES]).await.unwrap();
        client.write_all(&PING.repeat(4)).await.unwrap();
        let error = transport.read(&mut [0; 4096]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        drop(transport);
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer[3], frame::GOAWAY);
        assert!(answer.ends_with(b"too_many_pings"));
    }
}
