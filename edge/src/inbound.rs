//! The received messages of a call.
//!
//! A message has a prefix of five bytes: whether it is compressed, and its length. A small message
//! is received at once. A larger one waits until a handler demands it, because the caller may not
//! be authenticated yet.

use std::{
    rc::Rc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes, BytesMut};
use h2::RecvStream;

use crate::{
    budget::{Budget, Budgets, Share},
    compression::Compression,
    counters::Limit,
    limits::{SMALL_MESSAGE_BYTES, UNKNOWN_WINDOW_BYTES},
    standing::Standing,
    status::{Code, Status},
};

/// Length of the prefix of a message.
pub const PREFIX_BYTES: usize = 5;

/// What a client sent.
#[derive(Debug, Eq, PartialEq)]
pub enum Received {
    /// A message, decompressed.
    Message(Bytes),
    /// The beginning of a message that is received only on demand; reported once a message.
    Large,
    /// The end of the client's messages.
    End,
}

/// Why no further message is received.
#[derive(Debug, Eq, PartialEq)]
pub enum InboundError {
    /// The call ends with this status.
    Refused(Status),
    /// The client or the connection has ended the call.
    Lost,
}

/// The client's side of a call.
#[derive(Debug)]
pub struct Inbound {
    body: RecvStream,
    frames: Frames,
}

impl Inbound {
    /// Returns the messages in the body of a request.
    #[must_use]
    pub fn new(body: RecvStream, frames: Frames) -> Self {
        Self { body, frames }
    }

    /// Receives the next message, whatever its size.
    ///
    /// # Errors
    ///
    /// The budget of large messages has no room for the bytes that have arrived already.
    pub fn demand(&mut self) -> Result<(), InboundError> {
        self.frames.demand()
    }

    /// Returns whether a message has begun to arrive.
    #[must_use]
    pub fn is_in_message(&self) -> bool {
        !self.frames.buffer.is_empty()
    }

    /// Returns whether the next message waits for a demand.
    #[must_use]
    pub fn is_held_back(&self) -> bool {
        self.frames.is_held_back()
    }

    /// Returns the number of bytes that have arrived.
    #[must_use]
    pub fn arrived_bytes(&self) -> u64 {
        self.frames.arrived
    }

    /// Receives until a message is complete.
    ///
    /// # Errors
    ///
    /// See [`InboundError`].
    pub fn poll_received(&mut self, context: &mut Context) -> Poll<Result<Received, InboundError>> {
        loop {
            if let Some(received) = self.frames.next()? {
                return Poll::Ready(Ok(received));
            }
            if self.frames.is_held_back() {
                self.frames.count_unfinished()?;
                return Poll::Pending; // the demand of the handler wakes the call
            }
            let Poll::Ready(data) = self.body.poll_data(context) else {
                self.frames.count_unfinished()?;
                return Poll::Pending;
            };
            match data {
                Some(Ok(data)) => {
                    let released = self.body.flow_control().release_capacity(data.len());
                    released.map_err(|_| InboundError::Lost)?;
                    self.frames.add(data);
                }
                Some(Err(_)) => return Poll::Ready(Err(InboundError::Lost)),
                None => {
                    // Trailers of the client have no meaning in gRPC, but a reset would be lost.
                    let trailers = ready!(self.body.poll_trailers(context));
                    trailers.map_err(|_| InboundError::Lost)?;
                    return Poll::Ready(self.frames.end().map(|()| Received::End));
                }
            }
        }
    }
}

/// Cuts the bytes of a body into messages.
#[derive(Debug)]
pub struct Frames {
    compression: Compression,
    bytes_max: usize,
    budgets: Rc<Budgets>,
    standing: Rc<Standing>,
    /// Bytes that belong to no complete message yet.
    buffer: BytesMut,
    share: Share,
    is_demanded: bool,
    is_large_reported: bool,
    /// Whether the small message at the head of the buffer is large once it is decompressed.
    expands: bool,
    arrived: u64,
}

impl Frames {
    /// Returns an empty buffer.
    ///
    /// `bytes_max` is the maximum size of a decompressed message. The standing of the client and the
    /// demand of the handler decide in which of the budgets an unfinished message counts.
    #[must_use]
    pub fn new(compression: Compression, bytes_max: usize, budgets: Rc<Budgets>, standing: Rc<Standing>) -> Self {
        let share = Share::of(if standing.is_known() { &budgets.small } else { &budgets.unknown });
        Self {
            compression,
            bytes_max,
            budgets,
            standing,
            buffer: BytesMut::new(),
            share,
            is_demanded: false,
            is_large_reported: false,
            expands: false,
            arrived: 0,
        }
    }

    fn demand(&mut self) -> Result<(), InboundError> {
        self.is_demanded = true;
        self.count_unfinished()
    }

    /// Returns the budget of the unfinished message, and the limit that the budget has.
    fn budget(&self) -> (&Rc<Budget>, Limit) {
        if self.is_demanded {
            (&self.budgets.large, Limit::Unfinished)
        } else if self.standing.is_known() {
            (&self.budgets.small, Limit::UnfinishedSmall)
        } else {
            (&self.budgets.unknown, Limit::UnfinishedUnknown)
        }
    }

    fn add(&mut self, data: Bytes) {
        self.arrived += data.len() as u64;
        if self.buffer.is_empty() {
            // Most bodies are one frame of HTTP/2 with one message: no copy.
            self.buffer = data.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        } else {
            self.buffer.extend_from_slice(&data);
        }
    }

    /// Returns the size of the message at the head of the buffer, once its prefix has arrived.
    fn head_bytes(&self) -> Option<usize> {
        let length = self.buffer.get(1..PREFIX_BYTES)?;
        Some(u32::from_be_bytes(length.try_into().expect("four bytes")) as usize)
    }

    fn is_held_back(&self) -> bool {
        !self.is_demanded && (self.expands || self.head_bytes().is_some_and(|bytes| bytes > SMALL_MESSAGE_BYTES))
    }

    fn next(&mut self) -> Result<Option<Received>, InboundError> {
        let Some(bytes) = self.head_bytes() else {
            return Ok(None);
        };
        if bytes > self.bytes_max {
            return Err(too_large(self.bytes_max));
        }
        if self.is_held_back() {
            return Ok(self.held_back());
        }
        if self.buffer.len() < PREFIX_BYTES + bytes {
            self.buffer.reserve(PREFIX_BYTES + bytes - self.buffer.len());
            return Ok(None);
        }
        let whole = self.decompressed(bytes)?;
        if self.expands && !self.is_demanded {
            return Ok(self.held_back());
        }
        self.buffer.advance(PREFIX_BYTES);
        let message = self.buffer.split_to(bytes).freeze();
        self.is_demanded = false;
        self.is_large_reported = false;
        self.expands = false;
        self.share = Share::of(self.budget().0);
        Ok(Some(Received::Message(whole.unwrap_or(message))))
    }

    /// Reports once that the message waits for a demand.
    fn held_back(&mut self) -> Option<Received> {
        let is_news = !std::mem::replace(&mut self.is_large_reported, true);
        is_news.then_some(Received::Large)
    }

    /// Returns the content of the complete message at the head of the buffer; `None` if the message
    /// is not compressed.
    ///
    /// A caller who may be unknown must not make the edge hold more than a small message, so
    /// decompression ends there, and the message counts as large, until a handler demands it.
    fn decompressed(&mut self, bytes: usize) -> Result<Option<Bytes>, InboundError> {
        let message = &self.buffer[PREFIX_BYTES..PREFIX_BYTES + bytes];
        match (self.buffer[0], self.compression) {
            (0, _) => Ok(None),
            (1, Compression::Identity) => {
                Err(refused(Code::Internal, "the message is compressed, but the call announces no compression"))
            }
            (1, compression) => {
                let bytes_max = if self.is_demanded { self.bytes_max } else { self.bytes_max.min(SMALL_MESSAGE_BYTES) };
                let whole = compression
                    .decompress(message, bytes_max)
                    .map_err(|_| refused(Code::Internal, "the compressed message is malformed"))?;
                if whole.len() > self.bytes_max {
                    return Err(too_large(self.bytes_max));
                }
                self.expands = whole.len() > bytes_max;
                Ok(Some(whole.into()))
            }
            _ => Err(refused(Code::Internal, "the prefix of the message is malformed")),
        }
    }

    /// Counts the bytes of the unfinished message, because the client has sent no more for now.
    fn count_unfinished(&mut self) -> Result<(), InboundError> {
        let bytes = self.buffer.len() + self.behind_bytes();
        let (budget, limit) = self.budget();
        let budget = Rc::clone(budget);
        if self.share.hold(&budget, bytes) { Ok(()) } else { Err(no_room(limit)) }
    }

    /// Returns the bytes that HTTP/2 may hold of an unknown client's message that waits for a demand.
    fn behind_bytes(&self) -> usize {
        if self.standing.is_known() || !self.is_held_back() {
            return 0;
        }
        let missing = self.head_bytes().map_or(0, |bytes| (PREFIX_BYTES + bytes).saturating_sub(self.buffer.len()));
        missing.min(UNKNOWN_WINDOW_BYTES as usize)
    }

    fn end(&self) -> Result<(), InboundError> {
        if self.buffer.is_empty() { Ok(()) } else { Err(refused(Code::Internal, "the message is not complete")) }
    }
}

fn refused(code: Code, text: &'static str) -> InboundError {
    InboundError::Refused(Status::new(code, text))
}

fn no_room(limit: Limit) -> InboundError {
    let text = "this node receives too many messages at once; retry later or on another node";
    InboundError::Refused(Status::at(limit, Code::ResourceExhausted, text))
}

fn too_large(bytes_max: usize) -> InboundError {
    let text = format!("the message is larger than {bytes_max} bytes");
    InboundError::Refused(Status::at(Limit::Received, Code::ResourceExhausted, text))
}

#[cfg(test)]
mod tests {
    use std::{io::Write, sync::Arc};

    use flate2::{Compression as Level, write::GzEncoder};

    use super::*;

    const BYTES_MAX: usize = 4 * SMALL_MESSAGE_BYTES;

    /// Returns the buffer of a call of a known client, the budget for small messages, and for large ones.
    fn frames(small: usize, large: usize) -> (Frames, Rc<Budget>, Rc<Budget>) {
        let (frames, budgets) = frames_of(Standing::new(true), [0, small, large]);
        (frames, Rc::clone(&budgets.small), Rc::clone(&budgets.large))
    }

    fn frames_of(standing: Standing, budgets: [usize; 3]) -> (Frames, Rc<Budgets>) {
        let [unknown, small, large] = budgets.map(|bytes| Budget::new(bytes, Arc::default()));
        let budgets = Rc::new(Budgets { unknown, small, large });
        (Frames::new(Compression::Gzip, BYTES_MAX, Rc::clone(&budgets), Rc::new(standing)), budgets)
    }

    fn framed(flag: u8, message: &[u8]) -> Bytes {
        let mut whole = vec![flag];
        whole.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        whole.extend(message);
        whole.into()
    }

    fn message(frames: &mut Frames) -> Bytes {
        match frames.next().unwrap() {
            Some(Received::Message(message)) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_body_is_cut_into_messages() {
        let (mut frames, ..) = frames(100, 0);
        let both = [framed(0, b"one"), framed(0, b"")].concat();
        frames.add(Bytes::copy_from_slice(&both[..6]));
        assert_eq!(frames.next(), Ok(None));
        frames.add(Bytes::copy_from_slice(&both[6..]));
        assert_eq!((message(&mut frames), message(&mut frames)), ("one".into(), "".into()));
        assert_eq!(frames.end(), Ok(()));
    }

    #[test]
    fn a_large_message_waits_for_a_demand() {
        let (mut frames, small, large) = frames(100, BYTES_MAX);
        let whole = framed(0, &vec![7; SMALL_MESSAGE_BYTES + 1]);
        frames.add(whole.slice(..10));
        assert_eq!(frames.next(), Ok(Some(Received::Large)));
        assert_eq!(frames.next(), Ok(None));
        assert!(frames.is_held_back());
        frames.count_unfinished().unwrap();
        frames.demand().unwrap();
        assert_eq!((small.held(), large.held()), (0, 10));
        frames.add(whole.slice(10..));
        assert_eq!(message(&mut frames).len(), SMALL_MESSAGE_BYTES + 1);
        assert_eq!(large.held(), 0);
    }

    #[test]
    fn unfinished_messages_have_a_budget() {
        let (mut frames, small, _) = frames(8, 0);
        frames.add(framed(0, b"12345678").slice(..9));
        assert_eq!(frames.next(), Ok(None));
        assert_eq!(frames.count_unfinished(), Err(no_room(Limit::UnfinishedSmall)));
        assert_eq!(small.held(), 0);
    }

    #[test]
    fn unknown_clients_have_a_budget_of_their_own() {
        let (mut frames, budgets) = frames_of(Standing::new(false), [100, 100, 0]);
        let first = framed(0, b"12345678");
        frames.add(first.slice(..9));
        frames.count_unfinished().unwrap();
        assert_eq!((budgets.unknown.held(), budgets.small.held()), (9, 0));
        frames.standing.note_known();
        frames.count_unfinished().unwrap();
        assert_eq!((budgets.unknown.held(), budgets.small.held()), (0, 9));
        frames.add(first.slice(9..));
        assert_eq!(message(&mut frames), "12345678");
        assert_eq!(budgets.small.held(), 0);
    }

    #[test]
    fn what_http_holds_of_a_waiting_message_counts_for_an_unknown_client() {
        let window = UNKNOWN_WINDOW_BYTES as usize;
        let whole = framed(0, &vec![7; 2 * SMALL_MESSAGE_BYTES]);
        let (mut frames, budgets) = frames_of(Standing::new(false), [10 + window, 0, 100]);
        frames.add(whole.slice(..10));
        assert_eq!(frames.next(), Ok(Some(Received::Large)));
        frames.count_unfinished().unwrap();
        assert_eq!(budgets.unknown.held(), 10 + window);
        frames.demand().unwrap();
        assert_eq!((budgets.unknown.held(), budgets.large.held()), (0, 10));

        let (mut frames, _) = frames_of(Standing::new(false), [9 + window, 0, 100]);
        frames.add(whole.slice(..10));
        assert_eq!(frames.next(), Ok(Some(Received::Large)));
        assert_eq!(frames.count_unfinished(), Err(no_room(Limit::UnfinishedUnknown)));
    }

    #[test]
    fn a_message_above_the_maximum_is_refused_by_its_prefix() {
        let (mut frames, ..) = frames(100, 0);
        frames.add(Bytes::from_static(&[0, 255, 255, 255, 255]));
        assert_eq!(frames.next(), Err(too_large(BYTES_MAX)));
    }

    #[test]
    fn a_small_message_that_expands_waits_for_a_demand() {
        let (mut frames, small, large) = frames(1_000, 1_000);
        let content = vec![0; SMALL_MESSAGE_BYTES + 1];
        let mut encoder = GzEncoder::new(Vec::new(), Level::default());
        encoder.write_all(&content).unwrap();
        frames.add(framed(1, &encoder.finish().unwrap()));
        assert_eq!(frames.next(), Ok(Some(Received::Large)));
        assert_eq!(frames.next(), Ok(None));
        assert!(frames.is_held_back());
        frames.count_unfinished().unwrap();
        assert!((1..1_000).contains(&small.held()));
        frames.demand().unwrap();
        assert_eq!(message(&mut frames), content);
        assert_eq!((small.held(), large.held(), frames.is_held_back()), (0, 0, false));
    }

    #[test]
    fn malformed_messages_are_refused() {
        for malformed in [framed(2, b"x"), framed(1, b"no gzip")] {
            let (mut frames, ..) = frames(100, 0);
            frames.add(malformed);
            assert!(matches!(frames.next(), Err(InboundError::Refused(Status { code: Code::Internal, .. }))));
        }
    }

    #[test]
    fn an_unfinished_message_at_the_end_is_refused() {
        let (mut frames, ..) = frames(100, 0);
        frames.add(framed(0, b"12").slice(..6));
        assert!(frames.end().is_err());
    }
}
