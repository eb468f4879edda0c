//! A client of taskraft: it calls one node at a time, and goes to the next node when a connection is lost.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc, oneshot};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Response, Status};
use tonic_types::StatusExt;

use crate::pb::error::Reason;
use crate::pb::session_service_client::SessionServiceClient;
use crate::pb::settlement::{Ack, Action, Release};
use crate::pb::subscribe_request::{Credit, Open};
use crate::pb::subscribe_response::{Opened, Settled};
use crate::pb::task_service_client::TaskServiceClient;
use crate::pb::{
    CloseSessionRequest, ItemError, PutTasksRequest, PutTasksResponse, SettleTasksRequest, SettleTasksResponse,
    Settlement, SubscribeRequest, SubscribeResponse, TakeSource, TakeTasksRequest, TakeTasksResponse, Task,
};

const ATTEMPT: Duration = Duration::from_secs(5);
const CALL: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
const MESSAGE_BYTES_MAX: usize = 32 << 20;
/// Usual time in ms for which leases outlive a lost stream.
pub const SESSION_TTR_MS: i64 = 10_000;
/// Reasons of `Settled.error` after which the same message can succeed.
const SETTLED_AGAIN: [Reason; 5] =
    [Reason::Overloaded, Reason::Draining, Reason::NoLeader, Reason::NotLeader, Reason::CommitUnknown];
const SETTLED_PAUSE: Duration = Duration::from_millis(200);

/// An error of the server: the gRPC code, and the reason and its variables for programs.
#[derive(Clone, Debug)]
pub struct Refusal {
    pub code: Code,
    pub reason: String,
    pub message: String,
    pub metadata: HashMap<String, String>,
    /// Wait of the server before a retry; None: a retry cannot succeed.
    retry: Option<Duration>,
}

impl From<Status> for Refusal {
    /// Read the ErrorInfo of a failed call. A lost connection has no ErrorInfo, so its reason is empty.
    fn from(status: Status) -> Self {
        let info = status.get_details_error_info();
        let (reason, metadata) = info.map(|info| (info.reason, info.metadata)).unwrap_or_default();
        let retry = status.get_details_retry_info().and_then(|info| info.retry_delay);
        Self { code: status.code(), reason, message: status.message().into(), metadata, retry }
    }
}

/// Return the wait of the server, or a pause that doubles with each failure. The random part keeps clients from
/// calling a restarted cluster at the same time.
fn pause(retry: Option<Duration>, failures: u32) -> Duration {
    let random = f64::from(uuid::Uuid::new_v4().as_fields().0) / f64::from(u32::MAX);
    retry.unwrap_or_else(|| PAUSE_MAX.min(PAUSE * (1 << failures.min(8))).mul_f64(0.5 + random / 2.0))
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}: {}", self.reason, self.message)
    }
}

impl std::error::Error for Refusal {}

/// Return an idempotency key. A retry sends the same key, so the request has one effect.
fn new_request_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

pub struct Client {
    nodes: Vec<Channel>,
    token: Option<AsciiMetadataValue>,
    place: AtomicUsize,
}

impl Client {
    /// Connect to the nodes of TASKRAFT_TARGET. TASKRAFT_CA_FILE turns TLS on; TASKRAFT_TOKEN is a token.
    pub fn connect() -> Result<Self, Box<dyn std::error::Error>> {
        let target = std::env::var("TASKRAFT_TARGET").unwrap_or_else(|_| "127.0.0.1:7401".into());
        let authority = std::env::var("TASKRAFT_CA_FILE").ok().map(std::fs::read).transpose()?;
        let mut nodes = vec![];
        for address in target.split(',') {
            let scheme = if authority.is_some() { "https" } else { "http" };
            // A silent stream lives as long as its connection; pings find a lost connection.
            let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))?
                .http2_keep_alive_interval(Duration::from_secs(20))
                .keep_alive_timeout(Duration::from_secs(5))
                .connect_timeout(ATTEMPT);
            if let Some(pem) = &authority {
                let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem));
                endpoint = endpoint.tls_config(tls)?;
            }
            nodes.push(endpoint.connect_lazy());
        }
        let token = std::env::var("TASKRAFT_TOKEN").ok();
        let token = token.map(|token| format!("Bearer {token}").parse()).transpose()?;
        Ok(Self { nodes, token, place: AtomicUsize::new(0) })
    }

    fn place(&self) -> usize {
        self.place.load(Ordering::SeqCst)
    }

    fn node(&self, place: usize) -> Channel {
        self.nodes[place % self.nodes.len()].clone()
    }

    /// Make the next call use another node, unless another call has left this node already.
    fn leave(&self, place: usize) {
        let _ = self.place.compare_exchange(place, place + 1, Ordering::SeqCst, Ordering::SeqCst);
    }

    fn authenticated<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("authorization", token.clone());
        }
        request
    }

    /// Execute one request. UNAVAILABLE and a time-out do not tell whether the request was executed, so they
    /// are retried with the same request_id, on another node.
    async fn call<T: Clone, A>(
        &self,
        message: T,
        wait: Duration,
        method: impl AsyncFn(Channel, Request<T>) -> Result<Response<A>, Status>,
    ) -> Result<A, Refusal> {
        let end = Instant::now() + CALL + wait;
        for failures in 0.. {
            let place = self.place();
            let mut request = self.authenticated(message.clone());
            request.set_timeout(ATTEMPT + wait);
            let attempt = tokio::time::timeout(ATTEMPT + wait, method(self.node(place), request));
            let result = attempt.await.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in time")));
            let status = match result {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => status,
            };
            let may_retry = is_lost(&status);
            let refusal = Refusal::from(status);
            if !may_retry && refusal.retry.is_none() || Instant::now() > end {
                return Err(refusal);
            }
            self.leave(place);
            tokio::time::sleep(pause(refusal.retry, failures)).await;
        }
        unreachable!("the calls end in time")
    }

    /// Put tasks. A request without a request_id gets a random one.
    pub async fn put(&self, mut request: PutTasksRequest) -> Result<PutTasksResponse, Refusal> {
        if request.request_id.is_empty() {
            request.request_id = new_request_id();
        }
        self.call(request, Duration::ZERO, async |node, request| tasks(node).put_tasks(request).await).await
    }

    /// Take tasks, and wait for the first one as long as the request says.
    pub async fn take(&self, mut request: TakeTasksRequest) -> Result<TakeTasksResponse, Refusal> {
        request.request_id = new_request_id();
        let wait = Duration::from_millis(request.wait_ms.unwrap_or(0).try_into().unwrap_or(0));
        self.call(request, wait, async |node, request| tasks(node).take_tasks(request).await).await
    }

    /// Settle leases; the answer lists the refused leases. LEASE_STALE means that another consumer may have the
    /// task now, so its result must not be used.
    pub async fn settle(&self, settlement: Settlement) -> Result<SettleTasksResponse, Refusal> {
        let request =
            SettleTasksRequest { request_id: new_request_id(), settlements: vec![settlement], ..Default::default() };
        self.call(request, Duration::ZERO, async |node, request| tasks(node).settle_tasks(request).await).await
    }

    async fn close_session(&self, session_id: String) -> Result<(), Refusal> {
        let request =
            CloseSessionRequest { request_id: new_request_id(), session_id, uncounted: true, ..Default::default() };
        let method = async |node, request| SessionServiceClient::new(node).close_session(request).await;
        self.call(request, Duration::ZERO, method).await.map(drop)
    }
}

fn tasks(node: Channel) -> TaskServiceClient<Channel> {
    TaskServiceClient::new(node).max_decoding_message_size(MESSAGE_BYTES_MAX)
}

/// Return whether a failure does not tell if the request was executed. tonic reports a connection that broke
/// during a call as UNKNOWN, without details of the server.
fn is_lost(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded)
        || matches!(status.code(), Code::Unknown | Code::Internal | Code::Cancelled) && status.details().is_empty()
}

pub fn acknowledgement(tokens: Vec<i64>) -> Settlement {
    Settlement { tokens, action: Some(Action::Ack(Ack::default())) }
}

type Answer = Result<Vec<ItemError>, Refusal>;

#[derive(Default)]
struct State {
    session: String,
    /// Number of tasks that the server may still send.
    credit: i32,
    /// Tasks that nobody works on.
    tasks: VecDeque<Task>,
    /// Tokens of the tasks that were sent, and whether a further task was allowed.
    held: HashMap<i64, bool>,
    unanswered: HashMap<String, SubscribeRequest>,
    answers: HashMap<String, oneshot::Sender<Answer>>,
    /// Takes the messages of the stream; None: no stream is open.
    stream: Option<mpsc::UnboundedSender<SubscribeRequest>>,
    failures: u32,
    /// Why the subscription has ended by itself.
    refusal: Option<Refusal>,
}

/// Takes tasks from a stream. A lost stream is opened again with its session, so that the leases stay valid.
pub struct Subscription {
    client: Arc<Client>,
    state: Arc<Mutex<State>>,
    arrivals: Arc<Notify>,
    reader: tokio::task::JoinHandle<()>,
}

impl Subscription {
    /// Open a subscription; the server sends at most `credit` tasks that are not settled. The leases outlive a
    /// lost stream for `session_ttr_ms`.
    pub fn open(client: Arc<Client>, tube: String, credit: i32, session_ttr_ms: i64) -> Self {
        let state = Arc::new(Mutex::new(State { credit, ..State::default() }));
        let arrivals = Arc::new(Notify::new());
        let open = Open {
            sources: vec![TakeSource { tube, ..Default::default() }],
            session_ttr_ms: Some(session_ttr_ms),
            ..Default::default()
        };
        let reader = tokio::spawn(read(client.clone(), state.clone(), open, arrivals.clone()));
        Self { client, state, arrivals, reader }
    }

    /// Return the next task, or None after the time; an error says, for example, that the tube was dropped.
    pub async fn next(&mut self, wait: Duration) -> Result<Option<Task>, Refusal> {
        let arrived = async {
            loop {
                {
                    let mut state = self.state.lock().unwrap();
                    if let Some(task) = state.tasks.pop_front() {
                        return Ok(Some(task));
                    }
                    if let Some(refusal) = &state.refusal {
                        return Err(refusal.clone());
                    }
                }
                self.arrivals.notified().await;
            }
        };
        tokio::time::timeout(wait, arrived).await.unwrap_or(Ok(None))
    }

    /// Acknowledge tasks on the stream, allow as many further tasks, and return the refused leases. The error is a
    /// Refusal if the whole message was refused.
    pub async fn acknowledge(&self, tokens: Vec<i64>) -> Result<Vec<ItemError>, Box<dyn std::error::Error>> {
        let (sender, answer) = oneshot::channel();
        let key = {
            let mut state = self.state.lock().unwrap();
            let mut allowed = 0;
            for token in &tokens {
                // Each task allows one further task, also if it is settled twice.
                if let Some(is_allowed @ false) = state.held.get_mut(token) {
                    *is_allowed = true;
                    allowed += 1;
                }
            }
            let message = state.keep(acknowledgement(tokens));
            let key = message.request_id.clone();
            state.answers.insert(key.clone(), sender);
            state.send(message);
            state.credit += allowed;
            if allowed > 0 {
                state.send(credit_message(allowed));
            }
            key
        };
        let answered = tokio::time::timeout(CALL, answer).await;
        let mut state = self.state.lock().unwrap();
        state.unanswered.remove(&key);
        state.answers.remove(&key);
        Ok(answered???)
    }

    /// End the stream and its session; tasks that are still leased go to other consumers at once.
    pub async fn close(self) -> Result<(), Refusal> {
        self.reader.abort();
        let _ = self.reader.await;
        let session = self.state.lock().unwrap().session.clone();
        if session.is_empty() { Ok(()) } else { self.client.close_session(session).await }
    }
}

fn credit_message(tasks: i32) -> SubscribeRequest {
    SubscribeRequest { credit: Some(Credit { tasks, bytes: 0 }), ..Default::default() }
}

/// Read streams until the subscription is closed; after each stream, go on with another node.
async fn read(client: Arc<Client>, state: Arc<Mutex<State>>, mut open: Open, arrivals: Arc<Notify>) {
    loop {
        let place = client.place();
        open.session_id = state.lock().unwrap().session.clone();
        let (sender, outgoing) = mpsc::unbounded_channel();
        // The credit follows when the stream is open: if this message or its answer is lost, no task is lost.
        let _ = sender.send(SubscribeRequest { open: Some(open.clone()), ..Default::default() });
        let request = client.authenticated(UnboundedReceiverStream::new(outgoing));
        let end = match tasks(client.node(place)).subscribe(request).await {
            Ok(answer) => {
                let mut stream = answer.into_inner();
                loop {
                    match stream.message().await {
                        Ok(Some(message)) => {
                            note(&state, message, &sender);
                            arrivals.notify_one();
                        }
                        Ok(None) => break None,
                        Err(status) => break Some(status),
                    }
                }
            }
            Err(status) => Some(status),
        };
        let wait = {
            let mut state = state.lock().unwrap();
            state.stream = None;
            let refusal = end.map(Refusal::from);
            let retry = refusal.as_ref().and_then(|refusal| refusal.retry);
            let reason = refusal.as_ref().map_or("", |refusal| &refusal.reason);
            if reason == "SESSION_NOT_FOUND" {
                state.forget_session();
            } else if !reason.is_empty() && retry.is_none() {
                // A new stream would be refused too, for example because all tubes of the stream were dropped.
                state.refusal = refusal;
                arrivals.notify_one();
                return;
            }
            state.failures += 1;
            pause(retry, state.failures - 1)
        };
        // The server said go_away, or the connection is lost.
        client.leave(place);
        tokio::time::sleep(wait).await;
    }
}

/// Keep the books of the session, the credit and the settlements.
fn note(shared: &Arc<Mutex<State>>, message: SubscribeResponse, sender: &mpsc::UnboundedSender<SubscribeRequest>) {
    let mut state = shared.lock().unwrap();
    if let Some(opened) = message.opened {
        state.stream = Some(sender.clone());
        state.resume(opened);
    }
    for task in message.tasks {
        state.credit -= 1;
        state.held.insert(task.token, false);
        state.tasks.push_back(task);
    }
    for settled in message.settled {
        let is_again = settled.error.as_ref().is_some_and(|error| SETTLED_AGAIN.contains(&error.reason()));
        if !is_again {
            state.settled(settled);
            continue;
        }
        let shared = shared.clone();
        tokio::spawn(async move {
            tokio::time::sleep(SETTLED_PAUSE).await;
            let state = shared.lock().unwrap();
            if let Some(message) = state.unanswered.get(&settled.request_id) {
                state.send(message.clone());
            }
        });
    }
}

impl State {
    /// Release the tasks that were in transit when a stream was cut, allow the tasks that the server may still
    /// send, and repeat the settlements without an answer. A long list of tasks comes in several messages.
    fn resume(&mut self, opened: Opened) {
        self.session = opened.session_id;
        self.failures = 0;
        let tokens = opened.held.into_iter().map(|task| task.token);
        let lost: Vec<i64> = tokens.filter(|token| !self.held.contains_key(token)).collect();
        if !lost.is_empty() {
            let release = Release { delay_ms: Some(0), uncounted: true, ..Default::default() };
            self.keep(Settlement { tokens: lost, action: Some(Action::Release(release)) });
        }
        if opened.held_continues {
            return;
        }
        if self.credit > 0 {
            self.send(credit_message(self.credit));
        }
        for message in self.unanswered.values() {
            self.send(message.clone());
        }
    }

    /// Return a message that is repeated until it is answered. With the idempotency key, it has one effect.
    fn keep(&mut self, settlement: Settlement) -> SubscribeRequest {
        let key = new_request_id();
        let message = SubscribeRequest {
            request_id: key.clone(),
            idempotency_key: key.clone(),
            settlements: vec![settlement],
            ..Default::default()
        };
        self.unanswered.insert(key, message.clone());
        message
    }

    fn send(&self, message: SubscribeRequest) {
        if let Some(stream) = &self.stream {
            // If the stream has ended, the next stream sends the credit and the settlements again.
            let _ = stream.send(message);
        }
    }

    fn settled(&mut self, settled: Settled) {
        let Some(message) = self.unanswered.remove(&settled.request_id) else { return };
        let answer = match settled.error {
            // The message was refused as a whole: the tasks are still leased.
            Some(error) => Err(Refusal {
                code: Code::Unknown,
                reason: error.reason().as_str_name().into(),
                message: error.message,
                metadata: error.metadata,
                retry: None,
            }),
            None => {
                for token in message.settlements.iter().flat_map(|settlement| &settlement.tokens) {
                    self.held.remove(token);
                }
                Ok(settled.errors)
            }
        };
        if let Some(waiting) = self.answers.remove(&settled.request_id) {
            let _ = waiting.send(answer);
        }
    }

    /// Drop the tasks that nobody works on: their leases have ended, and other consumers get them.
    fn forget_session(&mut self) {
        self.session.clear();
        for task in std::mem::take(&mut self.tasks) {
            self.held.remove(&task.token);
            self.credit += 1;
        }
    }
}
