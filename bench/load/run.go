package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// options is what the command line says.
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

// run is one measurement: what all its workers share.
type run struct {
	options options
	cluster *cluster
	tube    string
	started time.Time // origin of all times; the clock is monotonic
	ctx     context.Context
	// stopping ends when the workers shall not begin anything more; streams end with it.
	stopping context.Context
	stop     context.CancelFunc

	isStopping atomic.Bool
	begin      atomic.Int64 // of the measured window, in ns since started; 0: still warming up
	end        atomic.Int64 // 0: still open
	settled    atomic.Int64 // tasks settled at all, to notice that the tube is empty
	planned    atomic.Int64 // puts that the workload "mixed" planned in the window
	isEmpty    chan struct{}
	filled     int

	gate    *gate
	mu      sync.Mutex
	workers []*worker
}

// now is the time since the run was started.
func (r *run) now() time.Duration { return time.Since(r.started) }

// isMeasured tells whether something that ended just now counts.
func (r *run) isMeasured() bool { return r.begin.Load() > 0 && r.end.Load() == 0 }

// newWorker makes the worker of a place among the connections.
func (r *run) newWorker(slot int) *worker {
	made := &worker{recorder: newRecorder(r), run: r, slot: slot}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.workers = append(r.workers, made)
	return made
}

// countSettled counts settled tasks, and notices when there are no more.
func (r *run) countSettled(tasks int) {
	if after := int(r.settled.Add(int64(tasks))); r.filled > 0 && after >= r.filled && after-tasks < r.filled {
		close(r.isEmpty)
	}
}

// processCPU is the processor time that this process has used, in user and kernel mode.
func processCPU() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(fmt.Sprintf("getrusage of ourselves: %v", err))
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// measure runs the loops through warm-up and window and returns what the window saw. It calls notify with
// "begin" and "end" at its borders, so that others can look at the servers at the same moments, and cut when
// calls that are still in flight long after the end have to be given up.
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

// gate bounds the number of tasks that are put and not yet settled.
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

// enter waits until there is room for so many tasks more; it reports false when the gate was closed.
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
