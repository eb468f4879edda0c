package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "taskraft/examples/stubs/taskraft/v1"
)

const (
	attemptTimeout = 5 * time.Second
	callTimeout    = 20 * time.Second
	pauseMin       = 50 * time.Millisecond
	pauseMax       = time.Second
	settledPause   = 200 * time.Millisecond
)

// SessionTTR is the usual time for which leases outlive a lost stream.
const SessionTTR = 10 * time.Second

// settledAgain has the reasons of Settled.error after which the same message can succeed.
var settledAgain = []pb.Error_Reason{
	pb.Error_OVERLOADED, pb.Error_DRAINING, pb.Error_NO_LEADER, pb.Error_NOT_LEADER, pb.Error_COMMIT_UNKNOWN,
}

// Refusal is an error of the server: the gRPC code, and the reason and its variables for programs.
type Refusal struct {
	Code     string            `json:"code"`
	Reason   string            `json:"reason"`
	Message  string            `json:"message"`
	Metadata map[string]string `json:"metadata"`
	retry    time.Duration     // wait of the server before a retry; 0: a retry cannot succeed
}

func (r *Refusal) Error() string { return r.Reason + ": " + r.Message }

// refusalOf reads the ErrorInfo of a failed call. A lost connection has no ErrorInfo and no reason.
func refusalOf(err error) *Refusal {
	found := status.Convert(err)
	refusal := &Refusal{Code: codeName(found.Code()), Message: found.Message()}
	for _, detail := range found.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			refusal.Reason, refusal.Metadata = detail.Reason, detail.Metadata
		case *errdetails.RetryInfo:
			refusal.retry = detail.RetryDelay.AsDuration()
		}
	}
	return refusal
}

var codeNames = map[codes.Code]string{
	codes.InvalidArgument: "INVALID_ARGUMENT", codes.NotFound: "NOT_FOUND", codes.AlreadyExists: "ALREADY_EXISTS",
	codes.FailedPrecondition: "FAILED_PRECONDITION", codes.ResourceExhausted: "RESOURCE_EXHAUSTED",
	codes.Unavailable: "UNAVAILABLE", codes.DeadlineExceeded: "DEADLINE_EXCEEDED", codes.Aborted: "ABORTED",
	codes.OutOfRange: "OUT_OF_RANGE", codes.Unimplemented: "UNIMPLEMENTED", codes.Internal: "INTERNAL",
	codes.Unauthenticated: "UNAUTHENTICATED", codes.PermissionDenied: "PERMISSION_DENIED",
}

func codeName(code codes.Code) string {
	if name, ok := codeNames[code]; ok {
		return name
	}
	return code.String()
}

// Client calls one node at a time and goes to the next node when a connection is lost.
type Client struct {
	connections []*grpc.ClientConn
	token       string

	mutex sync.Mutex
	place int
}

// Dial connects to the nodes of TASKRAFT_TARGET. TASKRAFT_CA_FILE turns TLS on; TASKRAFT_TOKEN is the
// token of the principal.
func Dial() (*Client, error) {
	transport := insecure.NewCredentials()
	if path := os.Getenv("TASKRAFT_CA_FILE"); path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read the certificate of the authority: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate", path)
		}
		transport = credentials.NewTLS(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
	}
	client := &Client{token: os.Getenv("TASKRAFT_TOKEN")}
	target := cmp.Or(os.Getenv("TASKRAFT_TARGET"), "127.0.0.1:7401")
	for _, address := range strings.Split(target, ",") {
		connection, err := grpc.NewClient("passthrough:///"+address,
			grpc.WithTransportCredentials(transport),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(32<<20)),
			// By default, the library waits up to two minutes before it connects again.
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: pauseMin, Multiplier: 2, Jitter: 0.2, MaxDelay: pauseMax},
				MinConnectTimeout: attemptTimeout,
			}),
			// A silent stream lives as long as its connection; pings find a lost connection.
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 5 * time.Second}))
		if err != nil {
			return nil, fmt.Errorf("connect to %s: %w", address, err)
		}
		client.connections = append(client.connections, connection)
	}
	return client, nil
}

// Close ends all connections.
func (c *Client) Close() {
	for _, connection := range c.connections {
		connection.Close()
	}
}

func (c *Client) node() *grpc.ClientConn {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.connections[c.place%len(c.connections)]
}

// leave makes the next call use another node, unless another call has left the node already.
func (c *Client) leave(node *grpc.ClientConn) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.connections[c.place%len(c.connections)] == node {
		c.place++
	}
}

func (c *Client) authenticated(ctx context.Context) context.Context {
	if c.token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.token)
}

// pause returns the wait of the server, or a pause that doubles with each failure. The random part keeps clients
// from calling a restarted cluster at the same time.
func pause(refusal *Refusal, failures int) time.Duration {
	if refusal.retry > 0 {
		return refusal.retry
	}
	longest := min(pauseMax, pauseMin<<min(failures, 8))
	return longest/2 + time.Duration(mathrand.Int64N(int64(longest/2)))
}

// newRequestID returns an idempotency key. A retry sends the same key, so the request has one effect.
func newRequestID() string { return rand.Text() }

// call executes one request. UNAVAILABLE and a time-out do not tell whether the request was executed, so
// they are retried with the same request_id, on another node.
func call[A any](c *Client, wait time.Duration, method func(context.Context, *grpc.ClientConn) (A, error)) (A, error) {
	end := time.Now().Add(callTimeout + wait)
	for failures := 0; ; failures++ {
		node := c.node()
		ctx, cancel := context.WithTimeout(c.authenticated(context.Background()), attemptTimeout+wait)
		answer, err := method(ctx, node)
		cancel()
		if err == nil {
			return answer, nil
		}
		refusal := refusalOf(err)
		code := status.Code(err)
		isLost := code == codes.Unavailable || code == codes.DeadlineExceeded
		if !isLost && refusal.retry == 0 || time.Now().After(end) {
			return answer, refusal
		}
		c.leave(node)
		time.Sleep(pause(refusal, failures))
	}
}

// Put puts tasks. An empty request_id is replaced by a random one.
func (c *Client) Put(request *pb.PutTasksRequest) (*pb.PutTasksResponse, error) {
	if request.RequestId == "" {
		request.RequestId = newRequestID()
	}
	return call(c, 0, func(ctx context.Context, node *grpc.ClientConn) (*pb.PutTasksResponse, error) {
		return pb.NewTaskServiceClient(node).PutTasks(ctx, request)
	})
}

// Take takes tasks and waits for the first one as long as the request says.
func (c *Client) Take(request *pb.TakeTasksRequest) (*pb.TakeTasksResponse, error) {
	request.RequestId = newRequestID()
	wait := time.Duration(request.GetWaitMs()) * time.Millisecond
	return call(c, wait, func(ctx context.Context, node *grpc.ClientConn) (*pb.TakeTasksResponse, error) {
		return pb.NewTaskServiceClient(node).TakeTasks(ctx, request)
	})
}

// Settle settles leases. The answer lists the refused leases: LEASE_STALE means that another consumer may
// have the task now, so its result must not be used.
func (c *Client) Settle(settlement *pb.Settlement) (*pb.SettleTasksResponse, error) {
	request := &pb.SettleTasksRequest{RequestId: newRequestID(), Settlements: []*pb.Settlement{settlement}}
	return call(c, 0, func(ctx context.Context, node *grpc.ClientConn) (*pb.SettleTasksResponse, error) {
		return pb.NewTaskServiceClient(node).SettleTasks(ctx, request)
	})
}

func ack(tokens ...int64) *pb.Settlement {
	return &pb.Settlement{Tokens: tokens, Action: &pb.Settlement_Ack_{Ack: &pb.Settlement_Ack{}}}
}

// Subscription takes tasks from a stream. A lost stream is opened again with its session, so that the
// leases stay valid.
type Subscription struct {
	client *Client
	tube   string
	ttrMs  int64
	tasks  chan *pb.Task
	closed context.Context
	close  context.CancelFunc
	ended  chan struct{}

	mutex      sync.Mutex
	session    string
	credit     int32          // tasks that the server may still send
	held       map[int64]bool // tokens of the tasks that were sent, and whether a further task was allowed
	unanswered map[string]*pb.SubscribeRequest
	answers    map[string]chan *pb.SubscribeResponse_Settled
	stream     grpc.BidiStreamingClient[pb.SubscribeRequest, pb.SubscribeResponse] // nil: no stream is open
	failures   int
	refusal    *Refusal // why the subscription has ended by itself; set before ended is closed
}

// Subscribe opens a subscription; the server sends at most credit tasks that are not settled. The leases outlive
// a lost stream for ttr.
func (c *Client) Subscribe(tube string, credit int32, ttr time.Duration) *Subscription {
	closed, close := context.WithCancel(context.Background())
	s := &Subscription{
		client: c, tube: tube, ttrMs: ttr.Milliseconds(), credit: credit, tasks: make(chan *pb.Task, credit),
		closed: closed, close: close, ended: make(chan struct{}), held: map[int64]bool{},
		unanswered: map[string]*pb.SubscribeRequest{}, answers: map[string]chan *pb.SubscribeResponse_Settled{},
	}
	go s.run()
	return s
}

func (s *Subscription) run() {
	defer close(s.ended)
	for s.closed.Err() == nil {
		node := s.client.node()
		err := s.read(node)
		if s.closed.Err() != nil {
			return
		}
		refusal := refusalOf(err)
		switch {
		case refusal.Reason == "SESSION_NOT_FOUND":
			s.forgetSession()
		case refusal.Reason != "" && refusal.retry == 0:
			// A new stream would be refused too, for example because all tubes of the stream were dropped.
			s.refusal = refusal
			return
		}
		// The server said go_away, or the connection is lost: go on with another node.
		fmt.Fprintln(os.Stderr, "stream ended:", err)
		s.client.leave(node)
		select {
		case <-time.After(pause(refusal, s.failures)):
		case <-s.closed.Done():
		}
		s.failures++
	}
}

// forgetSession drops the tasks that nobody works on: their leases have ended, and other consumers get them.
func (s *Subscription) forgetSession() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.session = ""
	for {
		select {
		case task := <-s.tasks:
			delete(s.held, task.Token)
			s.credit++
			continue
		default:
		}
		return
	}
}

// read opens the stream and reads until it ends. The error is never nil.
func (s *Subscription) read(node *grpc.ClientConn) error {
	stream, err := pb.NewTaskServiceClient(node).Subscribe(s.client.authenticated(s.closed))
	if err != nil {
		return err
	}
	// The credit follows when the stream is open: if this message or its answer is lost, no task is lost with it.
	first := &pb.SubscribeRequest{Open: &pb.SubscribeRequest_Open{
		Sources: []*pb.TakeSource{{Tube: s.tube}}, SessionId: s.session, SessionTtrMs: &s.ttrMs,
	}}
	if err := stream.Send(first); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	defer func() {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		s.stream = nil
	}()
	for {
		answer, err := stream.Recv()
		if err != nil {
			return err
		}
		s.note(answer, stream)
		for _, task := range answer.Tasks {
			s.tasks <- task
		}
	}
}

// note keeps the books of the session, the credit and the settlements.
func (s *Subscription) note(
	answer *pb.SubscribeResponse, stream grpc.BidiStreamingClient[pb.SubscribeRequest, pb.SubscribeResponse],
) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if answer.Opened != nil {
		s.session, s.failures, s.stream = answer.Opened.SessionId, 0, stream
		s.resume(answer.Opened)
	}
	for _, task := range answer.Tasks {
		s.credit--
		s.held[task.Token] = false
	}
	for _, settled := range answer.Settled {
		request, ok := s.unanswered[settled.RequestId]
		if !ok {
			continue
		}
		if slices.Contains(settledAgain, settled.GetError().GetReason()) {
			time.AfterFunc(settledPause, func() { s.sendAgain(request) })
			continue
		}
		delete(s.unanswered, settled.RequestId)
		if settled.Error == nil {
			for _, token := range request.Settlements[0].Tokens {
				delete(s.held, token)
			}
		}
		if waiting, ok := s.answers[settled.RequestId]; ok {
			delete(s.answers, settled.RequestId)
			waiting <- settled
		}
	}
}

// resume releases the tasks that were in transit when a stream was cut, allows the tasks that the server may
// still send, and repeats the settlements without an answer. A long list of tasks comes in several messages.
func (s *Subscription) resume(opened *pb.SubscribeResponse_Opened) {
	var lost []int64
	for _, task := range opened.Held {
		if _, ok := s.held[task.Token]; !ok {
			lost = append(lost, task.Token)
		}
	}
	if lost != nil {
		noDelay := int64(0)
		release := &pb.Settlement_Release{DelayMs: &noDelay, Uncounted: true}
		s.keep(&pb.Settlement{Tokens: lost, Action: &pb.Settlement_Release_{Release: release}})
	}
	if opened.HeldContinues {
		return
	}
	if s.credit > 0 {
		s.send(&pb.SubscribeRequest{Credit: &pb.SubscribeRequest_Credit{Tasks: s.credit}})
	}
	for _, request := range s.unanswered {
		s.send(request)
	}
}

// keep returns a message that is repeated until it is answered. With the idempotency key, it has one effect.
func (s *Subscription) keep(settlement *pb.Settlement) *pb.SubscribeRequest {
	key := newRequestID()
	request := &pb.SubscribeRequest{
		RequestId: key, IdempotencyKey: key, Settlements: []*pb.Settlement{settlement},
	}
	s.unanswered[key] = request
	return request
}

func (s *Subscription) send(request *pb.SubscribeRequest) {
	if s.stream != nil {
		// A failed send ends the stream; the next stream sends the credit and the settlements again.
		_ = s.stream.Send(request)
	}
}

func (s *Subscription) sendAgain(request *pb.SubscribeRequest) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if _, ok := s.unanswered[request.RequestId]; ok {
		s.send(request)
	}
}

// Next returns the next task. The error is that of the context, or a Refusal: for example, the tube was dropped.
func (s *Subscription) Next(ctx context.Context) (*pb.Task, error) {
	select {
	case task := <-s.tasks:
		return task, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.ended:
	}
	select {
	case task := <-s.tasks: // a task that came before the end
		return task, nil
	default:
		return nil, s.refusal
	}
}

// Ack acknowledges tasks on the stream, allows as many further tasks, and returns the refused leases.
func (s *Subscription) Ack(tokens ...int64) ([]*pb.ItemError, error) {
	return s.settle(ack(tokens...))
}

// Release gives a task back after a failed attempt, and allows a further task. The retry policy of the tube
// decides when the task can be taken again, and when it is buried.
func (s *Subscription) Release(token int64, failure error) ([]*pb.ItemError, error) {
	release := &pb.Settlement_Release{Failure: &pb.Failure{Message: failure.Error()}}
	return s.settle(&pb.Settlement{Tokens: []int64{token}, Action: &pb.Settlement_Release_{Release: release}})
}

// settle sends a settlement on the stream, and waits for its answer. The error is a Refusal if the whole message
// was refused; the tasks are then still leased.
func (s *Subscription) settle(settlement *pb.Settlement) ([]*pb.ItemError, error) {
	answer := make(chan *pb.SubscribeResponse_Settled, 1)
	s.mutex.Lock()
	request := s.keep(settlement)
	s.answers[request.RequestId] = answer
	s.send(request)
	tasks := int32(0)
	for _, token := range settlement.Tokens {
		// Each task allows one further task, also if it is settled twice.
		if isAllowed, ok := s.held[token]; ok && !isAllowed {
			s.held[token] = true
			tasks++
		}
	}
	s.credit += tasks
	if tasks > 0 {
		s.send(&pb.SubscribeRequest{Credit: &pb.SubscribeRequest_Credit{Tasks: tasks}})
	}
	s.mutex.Unlock()
	select {
	case settled := <-answer:
		if failed := settled.Error; failed != nil {
			return nil, &Refusal{Reason: failed.Reason.String(), Message: failed.Message, Metadata: failed.Metadata}
		}
		return settled.Errors, nil
	case <-time.After(callTimeout):
		s.mutex.Lock()
		defer s.mutex.Unlock()
		delete(s.unanswered, request.RequestId)
		delete(s.answers, request.RequestId)
		return nil, errors.New("the settlement was not answered, and may still take effect")
	}
}

// Close ends the stream and its session; tasks that are still leased go to other consumers at once.
func (s *Subscription) Close() error {
	s.close()
	for {
		select {
		case <-s.tasks:
			continue
		case <-s.ended:
		}
		break
	}
	if s.session == "" {
		return nil
	}
	request := &pb.CloseSessionRequest{RequestId: newRequestID(), SessionId: s.session, Uncounted: true}
	_, err := call(s.client, 0, func(ctx context.Context, node *grpc.ClientConn) (*pb.CloseSessionResponse, error) {
		return pb.NewSessionServiceClient(node).CloseSession(ctx, request)
	})
	return err
}
