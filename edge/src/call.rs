//! One call, from its headers to its status.

use std::{
    cell::RefCell,
    collections::VecDeque,
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use h2::{Reason, RecvStream, server::SendResponse};
use http::{Request, request::Parts};
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::{
    counters::Limit,
    exchange::{CallId, Command, Event, Peer},
    head::{Head, HeadRefused},
    inbound::{Frames, Inbound, InboundError, Received},
    limits::{AHEAD_BYTES, AHEAD_MESSAGES},
    outbound::{Outbound, Progress},
    server::{CallPermit, Hub},
    standing::Standing,
    status::{Code, Status},
};

/// Time for which the refusal of a call waits for the first bytes of the client. The client library
/// of Python reports an internal error instead of the status if it still writes at the end.
const REFUSAL_PATIENCE: Duration = Duration::from_millis(50);

/// The other end of a call.
#[derive(Debug)]
pub struct Client {
    /// The client, as Python sees it.
    pub peer: Arc<Peer>,
    /// Whether the client is known.
    pub standing: Rc<Standing>,
}

/// Number of messages of a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// One request; the handler gets it with the call if it came with the headers.
    OneRequest,
    /// Any number of requests; the handler reads them.
    ManyRequests,
}

/// Commands for one call, which the call has not obeyed yet.
#[derive(Debug, Default)]
pub struct Mailbox {
    commands: RefCell<VecDeque<Command>>,
    waker: RefCell<Option<Waker>>,
}

impl Mailbox {
    /// Adds a command and wakes the call.
    pub fn put(&self, command: Command) {
        self.commands.borrow_mut().push_back(command);
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    fn poll_next(&self, context: &mut Context) -> Poll<Command> {
        if let Some(command) = self.commands.borrow_mut().pop_front() {
            return Poll::Ready(command);
        }
        *self.waker.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }
}

/// What a call has to deal with next.
enum Step {
    Command(Command),
    Received(Result<Received, InboundError>),
    Progress(Progress),
    RequestIsSlow,
    Late,
    Stalled,
}

/// Serves a call until it has its status.
pub async fn serve(hub: Rc<Hub>, client: Client, request: Request<RecvStream>, respond: SendResponse<Bytes>) {
    let (parts, mut body) = request.into_parts();
    let mut outbound = Outbound::new(respond, hub.limits.sent_bytes);
    let (head, kind, permit) = match admit(&hub, &parts) {
        Ok(admitted) => admitted,
        Err(HeadRefused::NoCall(status)) => return outbound.answer_http(status),
        Err(HeadRefused::Refused(status)) => {
            hub.count(&status);
            // An end without a message is an end too, and so is the end of the patience.
            let _ = timeout(REFUSAL_PATIENCE, poll_fn(|context| body.poll_data(context))).await;
            return outbound.abort(&status);
        }
    };
    let Client { peer, standing } = client;
    let budgets = Rc::clone(&hub.budgets);
    let frames = Frames::new(head.compression, hub.limits.received_bytes, budgets, Rc::clone(&standing));
    let deadline = head.timeout.map(|timeout| Box::pin(sleep(timeout)));
    let mut call = Call {
        hub,
        permit,
        standing,
        inbound: Inbound::new(body, frames),
        outbound,
        deadline,
        stall: None,
        arrived_bytes: 0,
        stage: Stage::AwaitsRequest,
        lacks_request: kind == Kind::OneRequest,
        is_half_closed: false,
        ahead_messages: 0,
        ahead_bytes: 0,
    };
    let mut opening = Some(Opening { head, peer, began: Instant::now() });
    if kind == Kind::ManyRequests {
        call.open(&mut opening, None);
    }
    call.run(opening).await;
}

/// Returns the head of a call, the kind of its method, and a place for the call.
fn admit(hub: &Rc<Hub>, parts: &Parts) -> Result<(Head, Kind, CallPermit), HeadRefused> {
    let head = Head::read(parts, hub.limits.metadata_bytes as usize)?;
    let Some(kind) = hub.methods.get(&head.path).copied() else {
        let status = Status::new(Code::Unimplemented, format!("there is no method {}", head.path));
        return Err(HeadRefused::Refused(status));
    };
    if hub.is_unresponsive() {
        return Err(HeadRefused::Refused(unresponsive()));
    }
    let Some(permit) = hub.permit() else {
        let text = "this node has too many calls in progress; retry later or on another node";
        return Err(HeadRefused::Refused(Status::at(Limit::Calls, Code::ResourceExhausted, text)));
    };
    Ok((head, kind, permit))
}

fn unresponsive() -> Status {
    Status::at(Limit::Unresponsive, Code::Unavailable, "this node does not respond; retry on another node")
}

/// What Python learns when a call opens.
struct Opening {
    head: Head,
    peer: Arc<Peer>,
    began: Instant,
}

/// How far a call has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    /// Python does not know the call; its request may have arrived with the headers.
    AwaitsRequest,
    /// Python serves the call and got its only request.
    Served,
    /// Python serves the call and reads its messages.
    Reads,
    /// The call has its status; the last bytes are sent.
    Ending,
}

struct Call {
    hub: Rc<Hub>,
    permit: CallPermit,
    standing: Rc<Standing>,
    inbound: Inbound,
    outbound: Outbound,
    deadline: Option<Pin<Box<Sleep>>>,
    /// Fires if a message that has begun does not arrive.
    stall: Option<Pin<Box<Sleep>>>,
    arrived_bytes: u64,
    stage: Stage,
    /// Whether the only request of the call is not complete.
    lacks_request: bool,
    is_half_closed: bool,
    /// Messages, and their bytes, that Python has not read yet.
    ahead_messages: usize,
    ahead_bytes: usize,
}

impl Call {
    fn id(&self) -> CallId {
        self.permit.id
    }

    async fn run(&mut self, mut opening: Option<Opening>) {
        loop {
            let step = poll_fn(|context| self.poll_step(context)).await;
            let goes_on = match step {
                Step::Command(command) => self.obey(command),
                Step::Received(received) => self.accept(received, &mut opening),
                Step::Progress(Progress::Sent(bytes)) => {
                    self.report(Event::Sent(self.id(), bytes));
                    true
                }
                Step::Progress(Progress::Ended) => false,
                Step::Progress(Progress::Lost) => self.lose(),
                Step::RequestIsSlow => {
                    // The handler authenticates the caller before the request arrives.
                    self.open(&mut opening, None);
                    true
                }
                Step::Late => self.end(&Status::new(Code::DeadlineExceeded, "Deadline Exceeded")),
                Step::Stalled => {
                    let text = format!("no byte of the message came for {} ms", self.hub.limits.stall.as_millis());
                    self.end(&Status::at(Limit::Stall, Code::DeadlineExceeded, text))
                }
            };
            if !goes_on {
                return;
            }
        }
    }

    fn poll_step(&mut self, context: &mut Context) -> Poll<Step> {
        if let Poll::Ready(command) = self.permit.mailbox.poll_next(context) {
            return Poll::Ready(Step::Command(command));
        }
        if self.wants_messages() {
            match self.inbound.poll_received(context) {
                Poll::Ready(received) => return Poll::Ready(Step::Received(received)),
                Poll::Pending if self.stage == Stage::AwaitsRequest => return Poll::Ready(Step::RequestIsSlow),
                Poll::Pending => {}
            }
        }
        if let Poll::Ready(progress) = self.outbound.poll_progress(context) {
            return Poll::Ready(Step::Progress(progress));
        }
        if let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Step::Late);
        }
        self.poll_stall(context)
    }

    /// Returns whether the edge may receive bytes of the client: backpressure ends here.
    fn wants_messages(&self) -> bool {
        match self.stage {
            Stage::AwaitsRequest => true,
            Stage::Reads => {
                !self.is_half_closed && self.ahead_messages < AHEAD_MESSAGES && self.ahead_bytes < AHEAD_BYTES
            }
            Stage::Served | Stage::Ending => false,
        }
    }

    fn poll_stall(&mut self, context: &mut Context) -> Poll<Step> {
        let is_begun = self.lacks_request || self.inbound.is_in_message();
        let is_awaited = is_begun && self.wants_messages() && !self.inbound.is_held_back();
        if !is_awaited {
            self.stall = None;
            return Poll::Pending;
        }
        let arrived = self.inbound.arrived_bytes();
        if self.stall.is_none() || arrived != self.arrived_bytes {
            self.arrived_bytes = arrived;
            self.stall = Some(Box::pin(sleep(self.hub.limits.stall)));
        }
        match &mut self.stall {
            Some(stall) => stall.as_mut().poll(context).map(|()| Step::Stalled),
            None => Poll::Pending,
        }
    }

    /// Acts on what the client sent; false ends the call.
    fn accept(&mut self, received: Result<Received, InboundError>, opening: &mut Option<Opening>) -> bool {
        match received {
            Ok(Received::Message(message)) if self.stage == Stage::AwaitsRequest => {
                self.open(opening, Some(message));
            }
            Ok(Received::Message(_)) if self.hub.is_full() => return self.end(&unresponsive()),
            Ok(Received::Message(message)) => {
                self.lacks_request = false;
                self.ahead_messages += 1;
                self.ahead_bytes += message.len();
                self.report(Event::Message(self.id(), message));
                if !self.wants_messages() {
                    self.hub.counters.count(Limit::Unread);
                }
            }
            Ok(Received::Large) => {
                self.open(opening, None);
                self.report(Event::Large(self.id()));
            }
            Ok(Received::End) => {
                self.open(opening, None);
                self.is_half_closed = true;
                self.report(Event::HalfClosed(self.id()));
            }
            Err(InboundError::Refused(status)) => return self.end(&status),
            Err(InboundError::Lost) => return self.lose(),
        }
        true
    }

    /// Tells Python of the call; without effect if Python knows it.
    fn open(&mut self, opening: &mut Option<Opening>, message: Option<Bytes>) {
        let Some(Opening { head, peer, began }) = opening.take() else {
            return;
        };
        self.stage = if message.is_some() { Stage::Served } else { Stage::Reads };
        self.report(Event::Opened {
            call: self.id(),
            path: head.path,
            metadata: head.metadata,
            timeout: head.timeout.map(|timeout| timeout.saturating_sub(began.elapsed())),
            peer,
            is_known: self.standing.is_known(),
            message,
        });
    }

    /// Acts on a command of the handler; false ends the call.
    fn obey(&mut self, command: Command) -> bool {
        let obeyed = match command {
            Command::Initial(metadata) => self.outbound.send_initial(&metadata),
            Command::Message(message) => self.outbound.send(&message),
            Command::Flush => {
                self.outbound.flush();
                Ok(())
            }
            Command::Finish(ending) => {
                self.stage = Stage::Ending;
                self.outbound.finish(ending)
            }
            Command::Known => {
                self.standing.note_known();
                Ok(())
            }
            Command::Read(messages, bytes) => {
                self.ahead_messages = self.ahead_messages.saturating_sub(messages);
                self.ahead_bytes = self.ahead_bytes.saturating_sub(bytes);
                Ok(())
            }
            Command::Demand => match self.inbound.demand() {
                Ok(()) => Ok(()),
                Err(InboundError::Refused(status)) => Err(status),
                Err(InboundError::Lost) => return self.lose(),
            },
        };
        match obeyed {
            Ok(()) => true,
            Err(status) => self.end(&status),
        }
    }

    /// Ends the call with a status of the edge.
    fn end(&mut self, status: &Status) -> bool {
        self.hub.count(status);
        self.outbound.abort(status);
        let goes_on = self.lose();
        self.stage = Stage::Ending;
        goes_on
    }

    /// Tells Python that the call has ended without the handler.
    fn lose(&mut self) -> bool {
        if matches!(self.stage, Stage::Served | Stage::Reads) {
            self.report(Event::Cancelled(self.id()));
        }
        false
    }

    fn report(&self, event: Event) {
        self.hub.exchange.report(event);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // The server stops in the middle of the call, or the client has ended the call.
        if self.stage != Stage::Ending {
            self.outbound.reset(Reason::CANCEL);
        }
    }
}
