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

// retryRest is how long a worker rests after a call that another node, or the same one later, may answer.
const retryRest = 20 * time.Millisecond

// rest waits for a while, or less when the context ends.
func rest(ctx context.Context, duration time.Duration) {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// runName makes the request ids of this process differ from those of every other.
var runName = func() string {
	var random [8]byte
	_, _ = rand.Read(random[:]) // documented never to fail
	return hex.EncodeToString(random[:])
}()

// worker is one client: it has one request in flight, its own counters, and a place among the connections.
type worker struct {
	*recorder
	run  *run
	slot int
}

// requests counts the requests of all workers.
var requests atomic.Int64

// requestID names a request; a repetition of the request carries the same one.
func (w *worker) requestID() string {
	return runName + "-" + strconv.FormatInt(requests.Add(1), 36)
}

// call makes one unary call and repeats it, with the request it was given, while a retry is safe and useful.
// It reports whether there is an answer.
func (w *worker) call(do func(context.Context, taskraft.TaskServiceClient, grpc.CallOption) error) bool {
	for attempt := 0; ; attempt++ {
		// Another place each time: where no leader is followed, that is another node.
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

// isRetryable tells whether the same request may be sent again: it carries a request_id, so also when its
// outcome is not known.
func isRetryable(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted:
		return true
	default:
		return false
	}
}

// reasonOf is the stable reason of a refusal; where the error carries none, the name of its gRPC code.
func reasonOf(err error) string {
	failure := status.Convert(err)
	for _, detail := range failure.Details() {
		if info, isInfo := detail.(*errdetails.ErrorInfo); isInfo {
			return info.Reason
		}
	}
	return failure.Code().String()
}
