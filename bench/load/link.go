package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// link is a connection to one node, for the generated stubs.
//
// Unary calls use a wire, which costs the machine half of what grpc-go costs: the generator shares the cores
// with the servers that it measures. Streams, and requests larger than a frame, use grpc-go.
type link struct {
	*grpc.ClientConn // for streams
	address          string
	timeout          time.Duration

	mu   sync.Mutex
	wire *wire
}

// windowBytes is the flow control window of each stream and connection of grpc-go.
const windowBytes = 1 << 20

func newLink(address string, timeout time.Duration) (*link, error) {
	streams, err := grpc.NewClient(
		"passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// With windows of its own choice, grpc-go sends no PING with each answer to estimate the bandwidth.
		grpc.WithInitialWindowSize(windowBytes),
		grpc.WithInitialConnWindowSize(windowBytes),
		// The default back-off of a second or more would count as failover time of the cluster.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnectBackoff, MinConnectTimeout: time.Second}),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	return &link{ClientConn: streams, address: address, timeout: timeout}, nil
}

// Invoke makes one unary call; it is the method of the generated stubs.
func (l *link) Invoke(ctx context.Context, method string, request, answer any, opts ...grpc.CallOption) error {
	message := request.(proto.Message)
	raw := make([]byte, prefixBytes, prefixBytes+proto.Size(message))
	raw, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(raw, message)
	if err != nil {
		return fmt.Errorf("marshal a request: %w", err)
	}
	if len(raw) > wireMessageBytes {
		return l.ClientConn.Invoke(ctx, method, request, answer, opts...)
	}
	binary.BigEndian.PutUint32(raw[1:], uint32(len(raw)-prefixBytes))
	wire, err := l.usableWire(ctx)
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	call, err := wire.call(l.address, method, raw)
	if errors.Is(err, errWindowFull) {
		return l.ClientConn.Invoke(ctx, method, request, answer, opts...)
	}
	if err != nil {
		return err
	}
	for _, opt := range opts {
		if header, isHeader := opt.(grpc.HeaderCallOption); isHeader && call.leader != "" {
			*header.HeaderAddr = metadata.MD{leaderKey: {call.leader}}
		}
	}
	return call.result(answer.(proto.Message))
}

// usableWire returns the wire of the link, or dials a new one.
func (l *link) usableWire(ctx context.Context) (*wire, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wire != nil && l.wire.isUsable() {
		return l.wire, nil
	}
	dialing, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	wire, err := dialWire(dialing, l.address, l.timeout)
	l.wire = wire
	return wire, err
}

// Close closes the connections; calls in flight fail.
func (l *link) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wire != nil {
		l.wire.fail(errors.New("the run has ended"))
	}
	return l.ClientConn.Close()
}
