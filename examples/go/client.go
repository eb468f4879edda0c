package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
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
	retryDelay     = 50 * time.Millisecond
	sessionTTR     = 10_000 // ms for which leases outlive a lost stream
)

// Refusal is an error of the server: the gRPC code, and the reason and its variables for programs.
type Refusal struct {
	Code     string            `json:"code"`
	Reason   string            `json:"reason"`
	Message  string            `json:"message"`
	Metadata map[string]string `json:"metadata"`
}

func (r *Refusal) Error() string { return r.Reason + ": " + r.Message }

// refusalOf reads the ErrorInfo of a failed call. A lost connection has no ErrorInfo and no reason.
func refusalOf(err error) *Refusal {
	found := status.Convert(err)
	refusal := &Refusal{Code: codeName(found.Code()), Message: found.Message()}
	for _, detail := range found.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			refusal.Reason, refusal.Metadata = info.Reason, info.Metadata
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
	for _, address := range strings.Split(os.Getenv("TASKRAFT_TARGET"), ",") {
		connection, err := grpc.NewClient("passthrough:///"+address,
			grpc.WithTransportCredentials(transport),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(32<<20)),
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

// newRequestID returns an idempotency key. A retry sends the same key, so the request has one effect.
func newRequestID() string { return rand.Text() }

// call executes one request. UNAVAILABLE and a time-out do not tell whether the request was executed, so
// they are retried with the same request_id, on another node.
func call[A any](c *Client, wait time.Duration, method func(context.Context, *grpc.ClientConn) (A, error)) (A, error) {
	end := time.Now().Add(callTimeout + wait)
	for {
		node := c.node()
		ctx, cancel := context.WithTimeout(c.authenticated(context.Background()), attemptTimeout+wait)
		answer, err := method(ctx, node)
		cancel()
		code := status.Code(err)
		if err == nil || code != codes.Unavailable && code != codes.DeadlineExceeded || time.Now().After(end) {
			if err != nil {
				err = refusalOf(err)
			}
			return answer, err
		}
		c.leave(node)
		time.Sleep(retryDelay)
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
	Tasks  chan *pb.Task

	mutex      sync.Mutex
	session    string
	credit     int32 // tasks that the server may still send
	unanswered map[string]*pb.SubscribeRequest
	answers    map[string]chan *pb.SubscribeResponse_Settled
	stream     grpc.BidiStreamingClient[pb.SubscribeRequest, pb.SubscribeResponse]
	closed     context.Context
	close      context.CancelFunc
	ended      chan struct{}
	refusal    *Refusal // why the subscription has ended by itself; set before ended is closed
}

// Subscribe opens a subscription; the server sends at most credit tasks that are not acknowledged.
func (c *Client) Subscribe(tube string, credit int32) *Subscription {
	closed, close := context.WithCancel(context.Background())
	s := &Subscription{
		client: c, tube: tube, credit: credit, Tasks: make(chan *pb.Task, credit), closed: closed, close: close,
		unanswered: map[string]*pb.SubscribeRequest{}, answers: map[string]chan *pb.SubscribeResponse_Settled{},
		ended: make(chan struct{}),
	}
	go s.run()
	return s
}

func (s *Subscription) run() {
	defer close(s.ended)
	for s.closed.Err() == nil {
		node := s.client.node()
		if err := s.read(node); s.closed.Err() == nil {
			if refusal := refusalOf(err); refusal.Reason == "TUBE_NOT_FOUND" {
				// All tubes of the stream were dropped: a new stream would be refused too.
				s.refusal = refusal
				return
			}
			// The server said go_away, or the connection is lost: go on with another node.
			fmt.Fprintln(os.Stderr, "stream ended:", err)
			s.client.leave(node)
			time.Sleep(retryDelay)
		}
	}
}

// read opens the stream and reads until it ends.
func (s *Subscription) read(node *grpc.ClientConn) error {
	stream, err := pb.NewTaskServiceClient(node).Subscribe(s.client.authenticated(s.closed))
	if err != nil {
		return err
	}
	if err := s.open(stream); err != nil {
		return err
	}
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		s.mutex.Lock()
		if answer.Opened != nil {
			s.session = answer.Opened.SessionId
		}
		s.credit -= int32(len(answer.Tasks))
		for _, settled := range answer.Settled {
			delete(s.unanswered, settled.RequestId)
			if waiting, ok := s.answers[settled.RequestId]; ok {
				delete(s.answers, settled.RequestId)
				waiting <- settled
			}
		}
		s.mutex.Unlock()
		for _, task := range answer.Tasks {
			s.Tasks <- task
		}
	}
}

// Next returns the next task. The error is that of the context, or a Refusal: the tube was dropped.
func (s *Subscription) Next(ctx context.Context) (*pb.Task, error) {
	select {
	case task := <-s.Tasks:
		return task, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.ended:
	}
	select {
	case task := <-s.Tasks: // a task that came before the end
		return task, nil
	default:
		return nil, s.refusal
	}
}

// open sends the first messages: the sources, the credit, and settlements that a lost stream did not answer.
func (s *Subscription) open(stream grpc.BidiStreamingClient[pb.SubscribeRequest, pb.SubscribeResponse]) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	ttr := int64(sessionTTR)
	first := &pb.SubscribeRequest{Open: &pb.SubscribeRequest_Open{
		Sources: []*pb.TakeSource{{Tube: s.tube}}, SessionId: s.session, SessionTtrMs: &ttr,
	}}
	if err := stream.Send(first); err != nil {
		return err
	}
	if s.credit > 0 {
		if err := stream.Send(&pb.SubscribeRequest{Credit: &pb.SubscribeRequest_Credit{Tasks: s.credit}}); err != nil {
			return err
		}
	}
	for _, request := range s.unanswered {
		again := &pb.SubscribeRequest{
			RequestId: request.RequestId, IdempotencyKey: request.IdempotencyKey, Settlements: request.Settlements,
		}
		if err := stream.Send(again); err != nil {
			return err
		}
	}
	s.stream = stream
	return nil
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

// settle sends a settlement on the stream, and waits for its answer.
func (s *Subscription) settle(settlement *pb.Settlement) ([]*pb.ItemError, error) {
	key := newRequestID()
	tasks := int32(len(settlement.Tokens))
	// With the idempotency key, a settlement that is sent again has one effect.
	request := &pb.SubscribeRequest{
		RequestId: key, IdempotencyKey: key, Settlements: []*pb.Settlement{settlement},
		Credit: &pb.SubscribeRequest_Credit{Tasks: tasks},
	}
	answer := make(chan *pb.SubscribeResponse_Settled, 1)
	s.mutex.Lock()
	s.unanswered[key], s.answers[key] = request, answer
	s.credit += tasks
	if s.stream != nil {
		// A failed send ends the stream; the next stream sends the settlement again.
		_ = s.stream.Send(request)
	}
	s.mutex.Unlock()
	select {
	case settled := <-answer:
		return settled.Errors, nil
	case <-time.After(callTimeout):
		return nil, errors.New("the settlement was not answered")
	}
}

// Close ends the stream and its session; tasks that are still leased go to other consumers at once.
func (s *Subscription) Close() error {
	s.close()
	for {
		select {
		case <-s.Tasks:
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
