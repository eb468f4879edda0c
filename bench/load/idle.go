package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	taskraft "taskraft/load/stubs/taskraft/v1"
)

// idleReport is the result of the workload "idle", printed as one line of JSON.
type idleReport struct {
	Event       string  `json:"event"`
	Streams     int     `json:"streams"`
	Connections int     `json:"connections"`
	OpenSeconds float64 `json:"open_seconds"`
	Seconds     float64 `json:"seconds"`
	Heartbeats  int64   `json:"heartbeats"`
	// Ended counts the streams that ended before the run stopped them, with the first reason.
	Ended  int64  `json:"ended"`
	Reason string `json:"reason,omitempty"`
	// NextPutUs is the latency of one put after the window, while all streams are still open.
	NextPutUs int64 `json:"next_put_us"`
}

// idleStreams holds streams that get no task.
type idleStreams struct {
	run        *run
	opened     sync.WaitGroup
	heartbeats atomic.Int64
	ended      atomic.Int64
	reason     atomic.Value
}

// hold opens one stream with credit for one task, and reads it until the run stops.
func (s *idleStreams) hold(slot int) {
	isOpened := sync.OnceFunc(s.opened.Done)
	defer isOpened()
	err := s.read(slot, isOpened)
	if s.run.stopping.Err() == nil {
		s.ended.Add(1)
		s.reason.CompareAndSwap(nil, reasonOf(err)+": "+err.Error())
	}
}

func (s *idleStreams) read(slot int, isOpened func()) error {
	link, _, err := s.run.cluster.link(slot)
	if err != nil {
		return err
	}
	stream, err := taskraft.NewTaskServiceClient(link).Subscribe(s.run.stopping)
	if err != nil {
		return err
	}
	open := &taskraft.SubscribeRequest_Open{Sources: []*taskraft.TakeSource{{Tube: s.run.tube}}}
	credit := &taskraft.SubscribeRequest_Credit{Tasks: 1}
	if err := stream.Send(&taskraft.SubscribeRequest{Open: open, Credit: credit}); err != nil {
		return endOf(stream, err)
	}
	for {
		answer, err := stream.Recv()
		if err != nil {
			return err
		}
		if answer.Opened != nil {
			isOpened()
		}
		if answer.Heartbeat != nil {
			s.heartbeats.Add(1)
		}
	}
}

// holdIdleStreams opens all streams, measures the window, and makes one put at its end.
func (r *run) holdIdleStreams() (idleReport, error) {
	streams := &idleStreams{run: r}
	streams.opened.Add(r.options.clients)
	var holding sync.WaitGroup
	for slot := range r.options.clients {
		holding.Go(func() { streams.hold(slot) })
	}
	streams.opened.Wait()
	openTime := r.now()
	r.waitOrEmpty(r.options.warmUp)
	notify("begin")
	begin, heartbeats := r.now(), streams.heartbeats.Load()
	r.waitOrEmpty(r.options.duration)
	notify("end")
	result := idleReport{
		Event: "result", Streams: r.options.clients, Connections: r.options.connections,
		OpenSeconds: openTime.Seconds(), Seconds: (r.now() - begin).Seconds(),
		Heartbeats: streams.heartbeats.Load() - heartbeats, Ended: streams.ended.Load(),
	}
	result.Reason, _ = streams.reason.Load().(string)
	took, err := r.putOnOtherTube()
	result.NextPutUs = took.Microseconds()
	r.stop()
	holding.Wait()
	return result, err
}

// putOnOtherTube puts one task where no stream takes it, and returns the latency of the put.
func (r *run) putOnOtherTube() (time.Duration, error) {
	link, _, err := r.cluster.link(0)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(r.ctx, r.options.timeout)
	defer cancel()
	other := &run{options: r.options, cluster: r.cluster, tube: r.tube + "-other", ctx: r.ctx}
	if err := other.createTube(); err != nil {
		return 0, err
	}
	began := r.now()
	_, err = taskraft.NewTaskServiceClient(link).PutTasks(ctx, &taskraft.PutTasksRequest{
		RequestId: runName + "-next", Tube: other.tube,
		Tasks: []*taskraft.TaskSpec{newTask(r.options.payloadBytes, began)},
	})
	if err != nil {
		return 0, fmt.Errorf("put after the window: %w", err)
	}
	return r.now() - began, nil
}
