package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// options are the options of the command line.
type options struct {
	addresses    []string
	workload     string
	shape        string
	consumer     string
	clients      int
	connections  int
	batch        int
	backlog      int
	fill         int
	rate         int
	payloadBytes int
	warmUp       time.Duration
	duration     time.Duration
	timeout      time.Duration
	isFollowing  bool
	isDropping   bool
}

// run is the shared state of all workers of one measurement.
type run struct {
	options options
	cluster *cluster
	tube    string
	started time.Time // origin of all times; the clock is monotonic
	ctx     context.Context
	// stopping ends when the workers must start nothing new; streams end with it.
	stopping context.Context
	stop     context.CancelFunc

	isStopping atomic.Bool
	begin      atomic.Int64 // start of the measured window, in ns since started; 0: warm-up
	end        atomic.Int64 // end of the window; 0: still open
	settled    atomic.Int64 // number of all settled tasks, to detect an empty tube
	planned    atomic.Int64 // number of puts that the workload "mixed" planned in the window
	isEmpty    chan struct{}
	filled     int

	gate    *gate
	mu      sync.Mutex
	workers []*worker
}

// now returns the time since the start of the run.
func (r *run) now() time.Duration { return time.Since(r.started) }

// isMeasured returns whether an operation that ends now counts.
func (r *run) isMeasured() bool { return r.begin.Load() > 0 && r.end.Load() == 0 }

// newWorker returns a worker for a slot.
func (r *run) newWorker(slot int) *worker {
	made := &worker{recorder: newRecorder(r), run: r, slot: slot}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.workers = append(r.workers, made)
	return made
}

// countSettled counts settled tasks, and detects when the tube is empty.
func (r *run) countSettled(tasks int) {
	if after := int(r.settled.Add(int64(tasks))); r.filled > 0 && after >= r.filled && after-tasks < r.filled {
		close(r.isEmpty)
	}
}

// processCPU returns the CPU time of this process, in user and kernel mode.
func processCPU() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(fmt.Sprintf("getrusage of ourselves: %v", err))
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// measure runs the loops through warm-up and window and returns the report of the window. It calls notify with
// "begin" and "end" at the start and end of the window, so that the caller can measure the servers at the same
// times. It calls cut to cancel calls that are still in flight long after the end.
func (r *run) measure(
	loops []func(), cut context.CancelFunc, notify func(string),
) (window, cpu time.Duration) {
	var working sync.WaitGroup
	for _, loop := range loops {
		working.Go(loop)
	}
	r.waitOrEmpty(r.options.warmUp)
	notify("begin")
	begin, cpuBefore := r.now(), processCPU()
	r.begin.Store(int64(begin))
	r.waitOrEmpty(r.options.duration)
	end, cpuAfter := r.now(), processCPU()
	r.end.Store(int64(end))
	notify("end")
	r.isStopping.Store(true)
	r.stop()
	r.gate.close()
	cutting := time.AfterFunc(drainGrace, cut)
	defer cutting.Stop()
	working.Wait()
	return end - begin, cpuAfter - cpuBefore
}

func (r *run) waitOrEmpty(duration time.Duration) {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.isEmpty:
	case <-r.ctx.Done():
	}
}

// gate limits the number of unsettled tasks.
type gate struct {
	mu       sync.Mutex
	changed  *sync.Cond
	used     int
	most     int
	isClosed bool
}

func newGate(most int) *gate {
	made := &gate{most: most}
	made.changed = sync.NewCond(&made.mu)
	return made
}

// enter waits until the limit allows more tasks; it returns false after the gate was closed.
func (g *gate) enter(tasks int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for !g.isClosed && g.used > g.most-tasks {
		g.changed.Wait()
	}
	g.used += tasks
	return !g.isClosed
}

func (g *gate) leave(tasks int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.used -= tasks
	g.changed.Broadcast()
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.isClosed = true
	g.changed.Broadcast()
}
