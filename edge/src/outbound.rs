//! The sent messages of a call, and its status.

use std::{
    collections::VecDeque,
    task::{Context, Poll},
};

use bytes::{BufMut, Bytes, BytesMut};
use h2::{Reason, SendStream, server::SendResponse};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header::CONTENT_TYPE};

use crate::{
    compression,
    counters::Limit,
    exchange::Ending,
    inbound::PREFIX_BYTES,
    limits::{SENT_STEP_BYTES, SMALL_ANSWER_BYTES},
    metadata::{self, Pairs},
    status::{Code, Status, text_header},
};

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// Progress of the sent messages.
#[derive(Debug, Eq, PartialEq)]
pub enum Progress {
    /// Flow control has accepted so many further bytes of messages.
    Sent(usize),
    /// Everything is handed to HTTP/2, with the status.
    Ended,
    /// The client or the connection has ended the call.
    Lost,
}

/// The stream before and after its first headers are sent.
#[derive(Debug)]
enum Stream {
    Silent(SendResponse<Bytes>),
    Begun(SendStream<Bytes>),
}

/// The server's side of a call.
#[derive(Debug)]
pub struct Outbound {
    stream: Stream,
    /// Framed messages that flow control has not accepted yet, and their sizes without prefix.
    waiting: VecDeque<(Bytes, usize)>,
    ending: Option<(i32, String, Pairs)>,
    bytes_max: usize,
    accepted: usize,
    /// Whether sent bytes are reported before they fill a step.
    is_flushed: bool,
}

impl Outbound {
    /// Returns the sender of a call; `bytes_max` is the maximum size of a message.
    #[must_use]
    pub fn new(respond: SendResponse<Bytes>, bytes_max: usize) -> Self {
        Self {
            stream: Stream::Silent(respond),
            waiting: VecDeque::new(),
            ending: None,
            bytes_max,
            accepted: 0,
            is_flushed: false,
        }
    }

    /// Sends metadata before the first message; without effect once headers are sent.
    ///
    /// # Errors
    ///
    /// The call must end with the status: the metadata are invalid.
    pub fn send_initial(&mut self, metadata: &Pairs) -> Result<(), Status> {
        let mut headers = HeaderMap::new();
        metadata::append(&mut headers, metadata).map_err(|error| Status::new(Code::Internal, error.0))?;
        self.begin(headers);
        Ok(())
    }

    /// Sends a message when flow control permits.
    ///
    /// # Errors
    ///
    /// The call must end with the status: the message is too large.
    pub fn send(&mut self, message: &Bytes) -> Result<(), Status> {
        if message.len() > self.bytes_max {
            let text = format!("the answer is larger than {} bytes", self.bytes_max);
            return Err(Status::at(Limit::Sent, Code::ResourceExhausted, text));
        }
        self.waiting.push_back((framed(message), message.len()));
        Ok(())
    }

    /// Reports sent bytes at once, until no message waits.
    pub fn flush(&mut self) {
        self.is_flushed = true;
    }

    /// Ends the call after the messages that wait.
    ///
    /// # Errors
    ///
    /// The call must end with the status: the last message is too large.
    pub fn finish(&mut self, ending: Ending) -> Result<(), Status> {
        if let Some(answer) = &ending.answer {
            self.send(answer)?;
        }
        self.ending = Some((ending.code, ending.text, ending.metadata));
        Ok(())
    }

    /// Ends the call at once; messages that wait are dropped.
    pub fn abort(&mut self, status: &Status) {
        self.waiting.clear();
        self.send_status(status.code as i32, &status.text, &Pairs::new());
    }

    /// Ends the call without a status, with a reason of HTTP/2.
    pub fn reset(&mut self, reason: Reason) {
        match &mut self.stream {
            Stream::Silent(respond) => respond.send_reset(reason),
            Stream::Begun(stream) => stream.send_reset(reason),
        }
    }

    /// Answers a request that is no call of gRPC.
    pub fn answer_http(&mut self, status: StatusCode) {
        if let Stream::Silent(respond) = &mut self.stream {
            let mut response = Response::new(());
            *response.status_mut() = status;
            // An error means that the stream has ended already.
            let _ = respond.send_response(response, true);
        }
    }

    /// Sends as much as flow control permits.
    pub fn poll_progress(&mut self, context: &mut Context) -> Poll<Progress> {
        while let Some((message, _)) = self.waiting.front() {
            let is_small_answer =
                self.ending.is_some() && self.waiting.len() == 1 && message.len() <= SMALL_ANSWER_BYTES;
            match self.poll_send_first(context, is_small_answer) {
                Poll::Ready(true) => {}
                Poll::Ready(false) => return Poll::Ready(Progress::Lost),
                Poll::Pending => break,
            }
        }
        if self.waiting.is_empty()
            && let Some((code, text, metadata)) = self.ending.take()
        {
            self.send_status(code, &text, &metadata);
            return Poll::Ready(Progress::Ended);
        }
        let is_flush = self.is_flushed && self.accepted > 0;
        if self.accepted >= SENT_STEP_BYTES || is_flush {
            self.is_flushed &= !self.waiting.is_empty();
            return Poll::Ready(Progress::Sent(std::mem::take(&mut self.accepted)));
        }
        let reset = match &mut self.stream {
            Stream::Silent(respond) => respond.poll_reset(context),
            Stream::Begun(stream) => stream.poll_reset(context),
        };
        reset.map(|_| Progress::Lost)
    }

    /// Sends a part of the first message that waits; false if the stream has ended.
    fn poll_send_first(&mut self, context: &mut Context, ignores_window: bool) -> Poll<bool> {
        self.begin(HeaderMap::new());
        let Stream::Begun(stream) = &mut self.stream else {
            return Poll::Ready(false);
        };
        let Some((message, bytes)) = self.waiting.front_mut() else {
            return Poll::Ready(true);
        };
        let mut room = message.len();
        if !ignores_window {
            stream.reserve_capacity(message.len());
            room = stream.capacity();
            if room == 0 {
                match stream.poll_capacity(context) {
                    Poll::Ready(Some(Ok(capacity))) => room = capacity,
                    Poll::Ready(_) => return Poll::Ready(false),
                    Poll::Pending => return Poll::Pending,
                }
            }
        }
        let part = message.split_to(room.min(message.len()));
        if message.is_empty() {
            self.accepted += *bytes;
            self.waiting.pop_front();
        }
        Poll::Ready(stream.send_data(part, false).is_ok())
    }

    fn begin(&mut self, mut headers: HeaderMap) {
        if let Stream::Silent(respond) = &mut self.stream {
            headers.insert(CONTENT_TYPE, GRPC);
            headers.insert("grpc-accept-encoding", HeaderValue::from_static(compression::ACCEPTED));
            let mut response = Response::new(());
            *response.headers_mut() = headers;
            // An error means that the stream has ended; the next poll reports that.
            if let Ok(stream) = respond.send_response(response, false) {
                self.stream = Stream::Begun(stream);
            }
        }
    }

    fn send_status(&mut self, code: i32, text: &str, metadata: &Pairs) {
        let mut trailers = HeaderMap::with_capacity(metadata.len() + 2);
        trailers.insert(STATUS, HeaderValue::from(code));
        if !text.is_empty() {
            trailers.insert(MESSAGE, text_header(text));
        }
        if let Err(error) = metadata::append(&mut trailers, metadata) {
            trailers.clear();
            trailers.insert(STATUS, HeaderValue::from(Code::Internal as i32));
            trailers.insert(MESSAGE, text_header(&error.0));
        }
        // An error means that the stream has ended already, so nobody waits for the status.
        match &mut self.stream {
            Stream::Begun(stream) => drop(stream.send_trailers(trailers)),
            Stream::Silent(respond) => {
                trailers.insert(CONTENT_TYPE, GRPC);
                let mut response = Response::new(());
                *response.headers_mut() = trailers;
                drop(respond.send_response(response, true));
            }
        }
    }
}

/// Returns a message with its prefix.
fn framed(message: &Bytes) -> Bytes {
    let mut whole = BytesMut::with_capacity(PREFIX_BYTES + message.len());
    whole.put_u8(0);
    whole.put_u32(u32::try_from(message.len()).expect("the maximum size of a message fits"));
    whole.put_slice(message);
    whole.freeze()
}
