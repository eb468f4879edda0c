//! A client of taskraft: it calls one node at a time, and goes to the next node when a connection is lost.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Response, Status};
use tonic_types::StatusExt;

use crate::pb::session_service_client::SessionServiceClient;
use crate::pb::settlement::{Ack, Action};
use crate::pb::subscribe_request::{Credit, Open};
use crate::pb::task_service_client::TaskServiceClient;
use crate::pb::{
    CloseSessionRequest, ItemError, PutTasksRequest, PutTasksResponse, SettleTasksRequest, SettleTasksResponse,
    Settlement, SubscribeRequest, SubscribeResponse, TakeSource, TakeTasksRequest, TakeTasksResponse, Task,
};

const ATTEMPT: Duration = Duration::from_secs(5);
const CALL: Duration = Duration::from_secs(20);
const RETRY_DELAY: Duration = Duration::from_millis(50);
const MESSAGE_BYTES_MAX: usize = 32 << 20;
/// Time in ms for which leases outlive a lost stream.
const SESSION_TTR_MS: i64 = 10_000;

/// An error of the server: the gRPC code, and the reason and its variables for programs.
#[derive(Clone, Debug)]
pub struct Refusal {
    pub code: Code,
    pub reason: String,
    pub message: String,
    pub metadata: HashMap<String, String>,
}

impl From<Status> for Refusal {
    /// Read the ErrorInfo of a failed call. A lost connection has no ErrorInfo, so its reason is empty.
    fn from(status: Status) -> Self {
        let info = status.get_details_error_info();
        let (reason, metadata) = info.map(|info| (info.reason, info.metadata)).unwrap_or_default();
        Self { code: status.code(), reason, message: status.message().into(), metadata }
    }
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
        let target = std::env::var("TASKRAFT_TARGET").unwrap_or_else(|_| "127.0.0.1:7733".into());
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
        loop {
            let place = self.place();
            let mut request = self.authenticated(message.clone());
            request.set_timeout(ATTEMPT + wait);
            let attempt = tokio::time::timeout(ATTEMPT + wait, method(self.node(place), request));
            let result = attempt.await.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in time")));
            match result {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) if !is_lost(&status) || Instant::now() > end => return Err(status.into()),
                Err(_) => self.leave(place),
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
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

#[derive(Default)]
struct State {
    session: String,
    /// Number of tasks that the server may still send.
    credit: i32,
    unanswered: HashMap<String, SubscribeRequest>,
    answers: HashMap<String, oneshot::Sender<Vec<ItemError>>>,
    stream: Option<mpsc::UnboundedSender<SubscribeRequest>>,
    /// Why the subscription has ended by itself.
    refusal: Option<Refusal>,
}

/// Takes tasks from a stream. A lost stream is opened again with its session, so that the leases stay valid.
pub struct Subscription {
    client: Arc<Client>,
    state: Arc<Mutex<State>>,
    tasks: mpsc::UnboundedReceiver<Task>,
    reader: tokio::task::JoinHandle<()>,
}

impl Subscription {
    /// Open a subscription; the server sends at most `credit` tasks that are not acknowledged.
    pub fn open(client: Arc<Client>, tube: String, credit: i32) -> Self {
        let state = Arc::new(Mutex::new(State { credit, ..State::default() }));
        let (arrivals, tasks) = mpsc::unbounded_channel();
        let reader = tokio::spawn(read(client.clone(), state.clone(), tube, arrivals));
        Self { client, state, tasks, reader }
    }

    /// Return the next task, or None after the time; the error says that the tube was dropped.
    pub async fn next(&mut self, wait: Duration) -> Result<Option<Task>, Refusal> {
        match tokio::time::timeout(wait, self.tasks.recv()).await {
            Ok(None) => self.state.lock().unwrap().refusal.clone().map_or(Ok(None), Err),
            Ok(task) => Ok(task),
            Err(_) => Ok(None),
        }
    }

    /// Acknowledge tasks on the stream, allow as many further tasks, and return the refused leases.
    pub async fn acknowledge(&self, tokens: Vec<i64>) -> Result<Vec<ItemError>, Box<dyn std::error::Error>> {
        let key = new_request_id();
        let number = tokens.len().try_into()?;
        // With the idempotency key, a settlement that is sent again has one effect.
        let message = SubscribeRequest {
            request_id: key.clone(),
            idempotency_key: key.clone(),
            settlements: vec![acknowledgement(tokens)],
            ..Default::default()
        };
        let (sender, answer) = oneshot::channel();
        {
            let mut state = self.state.lock().unwrap();
            state.credit += number;
            state.unanswered.insert(key.clone(), message.clone());
            state.answers.insert(key, sender);
            if let Some(stream) = &state.stream {
                // If the stream has ended, the next stream sends both again.
                let _ = stream.send(message);
                let _ = stream.send(credit_message(number));
            }
        }
        Ok(tokio::time::timeout(CALL, answer).await??)
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
async fn read(client: Arc<Client>, state: Arc<Mutex<State>>, tube: String, arrivals: mpsc::UnboundedSender<Task>) {
    loop {
        let place = client.place();
        let (sender, outgoing) = mpsc::unbounded_channel();
        open(&mut state.lock().unwrap(), &tube, sender);
        let request = client.authenticated(UnboundedReceiverStream::new(outgoing));
        let end = match tasks(client.node(place)).subscribe(request).await {
            Ok(answer) => {
                let mut stream = answer.into_inner();
                loop {
                    match stream.message().await {
                        Ok(Some(message)) => {
                            note(&mut state.lock().unwrap(), &message);
                            for task in message.tasks {
                                let _ = arrivals.send(task);
                            }
                        }
                        Ok(None) => break None,
                        Err(status) => break Some(status),
                    }
                }
            }
            Err(status) => Some(status),
        };
        if let Some(refusal) = end.map(Refusal::from).filter(|refusal| refusal.reason == "TUBE_NOT_FOUND") {
            // All tubes of the stream were dropped: a new stream would be refused too.
            state.lock().unwrap().refusal = Some(refusal);
            return;
        }
        // The server said go_away, or the connection is lost.
        client.leave(place);
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

/// Send the first messages: the source, the credit, and settlements that a lost stream did not answer.
fn open(state: &mut State, tube: &str, sender: mpsc::UnboundedSender<SubscribeRequest>) {
    let open = Open {
        sources: vec![TakeSource { tube: tube.into(), ..Default::default() }],
        session_id: state.session.clone(),
        session_ttr_ms: Some(SESSION_TTR_MS),
        ..Default::default()
    };
    let _ = sender.send(SubscribeRequest { open: Some(open), ..Default::default() });
    if state.credit > 0 {
        let _ = sender.send(credit_message(state.credit));
    }
    for message in state.unanswered.values() {
        let _ = sender.send(message.clone());
    }
    state.stream = Some(sender);
}

fn note(state: &mut State, message: &SubscribeResponse) {
    if let Some(opened) = &message.opened {
        state.session = opened.session_id.clone();
    }
    state.credit -= i32::try_from(message.tasks.len()).unwrap_or(i32::MAX);
    for settled in &message.settled {
        state.unanswered.remove(&settled.request_id);
        if let Some(answer) = state.answers.remove(&settled.request_id) {
            let _ = answer.send(settled.errors.clone());
        }
    }
}
