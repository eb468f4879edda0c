package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	taskraft "taskraft/load/stubs/taskraft/v1"
)

var reconnectBackoff = backoff.Config{
	BaseDelay:  20 * time.Millisecond,
	Multiplier: 1.6,
	Jitter:     0.2,
	MaxDelay:   500 * time.Millisecond,
}

// retryRest is the pause of a worker before it retries a call.
const retryRest = 20 * time.Millisecond

// rest waits for a duration, or until the context ends.
func rest(ctx context.Context, duration time.Duration) {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// runName is a random prefix that makes the request ids of this process unique.
var runName = func() string {
	var random [8]byte
	_, _ = rand.Read(random[:]) // crypto/rand.Read never fails, according to its documentation
	return hex.EncodeToString(random[:])
}()

// worker is one client with one request in flight, its own counters and a slot among the connections.
type worker struct {
	*recorder
	run  *run
	slot int
}

// requests counts the requests of all workers.
var requests atomic.Int64

// requestID returns a new request id; a retry of the request uses the same id.
func (w *worker) requestID() string {
	return runName + "-" + strconv.FormatInt(requests.Add(1), 36)
}

// call makes one unary call and retries it with the same request while a retry is safe and useful.
// It returns whether there is a response.
func (w *worker) call(do func(context.Context, taskraft.TaskServiceClient, grpc.CallOption) error) bool {
	for attempt := 0; ; attempt++ {
		// Use another slot for each attempt; without -follow this is another node.
		link, address, err := w.run.cluster.link(w.slot + attempt)
		if err == nil {
			var header metadata.MD
			ctx, cancel := context.WithTimeout(w.run.ctx, w.run.options.timeout)
			err = do(ctx, taskraft.NewTaskServiceClient(link), grpc.Header(&header))
			cancel()
			w.run.cluster.heard(header)
		}
		if err == nil {
			return true
		}
		if w.run.ctx.Err() != nil {
			return false
		}
		w.countError(reasonOf(err))
		if !isRetryable(err) {
			rest(w.run.ctx, retryRest)
			return false
		}
		w.retries++
		w.run.cluster.failed(address)
		rest(w.run.ctx, retryRest)
	}
}

// isRetryable returns whether the request may be sent again. It has a request_id, so a retry is safe even if
// the outcome is unknown.
func isRetryable(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted:
		return true
	default:
		return false
	}
}

// reasonOf returns the stable reason of an error, or the name of its gRPC code if it has no reason.
func reasonOf(err error) string {
	failure := status.Convert(err)
	for _, detail := range failure.Details() {
		if info, isInfo := detail.(*errdetails.ErrorInfo); isInfo {
			return info.Reason
		}
	}
	return failure.Code().String()
}
