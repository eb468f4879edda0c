// Command load drives a taskraft cluster through gRPC and prints the measurements.
//
// It prints lines of JSON: {"event":"begin"} and {"event":"end"} at the start and end of the measured window,
// so that a reader can measure the servers at the same times, and finally {"event":"result", ...}.
package main

//go:generate ../../.venv/bin/buf generate ../../proto --path ../../proto/taskraft/v1 --template buf.gen.yaml

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// shape is the number of clients, of connections, and of tasks per request.
type shape struct{ clients, connections, batch, backlog, fill int }

// shapes are the variants (a), (b) and (c) of the workload.
var shapes = map[string]shape{
	"sequence": {clients: 1, connections: 1, batch: 1, backlog: 100, fill: 4_000},
	"clients":  {clients: 32, connections: 32, batch: 1, backlog: 2_000, fill: 12_000},
	"batches":  {clients: 8, connections: 2, batch: 100, backlog: 5_000, fill: 100_000},
}

// drainGrace is the maximum time of calls that are in flight at the end; then they are cancelled.
const drainGrace = 10 * time.Second

// threads is the number of threads that run Go code. The clients of the compared brokers have one too. With a
// second one, idle threads search for work, and a put of 32 clients takes up to a fifth more CPU time here.
const threads = 1

func parseOptions() (options, error) {
	var o options
	addresses := flag.String("addresses", "127.0.0.1:7401", "addresses of nodes, host:port, separated by commas")
	flag.StringVar(&o.workload, "workload", workloadPut, "put, take, cycle, mixed or idle")
	flag.StringVar(&o.shape, "shape", "batches", "sequence, clients or batches")
	flag.StringVar(&o.consumer, "consumer", "unary", "unary or stream")
	flag.IntVar(&o.clients, "clients", 0, "number of clients with one request in flight each (0: from the shape)")
	flag.IntVar(&o.connections, "connections", 0, "number of shared connections (0: from the shape)")
	flag.IntVar(&o.batch, "batch", 0, "number of tasks per request (0: from the shape)")
	flag.IntVar(&o.backlog, "backlog", 0, "workload cycle: maximum number of unsettled tasks (0: from the shape)")
	flag.IntVar(&o.fill, "fill", 0, "workload take: number of tasks to put before the measurement (0: from the shape)")
	flag.IntVar(&o.rate, "rate", 500, "workload mixed: puts planned per second")
	flag.IntVar(&o.payloadBytes, "payload-bytes", 100, "payload size in bytes, at least 16")
	flag.DurationVar(&o.warmUp, "warm-up", 500*time.Millisecond, "time before the measured window")
	flag.DurationVar(&o.duration, "duration", 2*time.Second, "length of the measured window")
	flag.DurationVar(&o.timeout, "timeout", 10*time.Second, "time limit of a call")
	flag.BoolVar(&o.isFollowing, "follow", true, "call the leader; false: call all nodes in turn")
	flag.BoolVar(&o.isDropping, "drop", true, "drop the tube at the end")
	flag.Parse()
	o.addresses = strings.Split(*addresses, ",")
	preset, isKnown := shapes[o.shape]
	if !isKnown {
		return o, fmt.Errorf("unknown shape %q", o.shape)
	}
	if o.consumer != "unary" && o.consumer != "stream" {
		return o, fmt.Errorf("unknown consumer %q", o.consumer)
	}
	if o.payloadBytes < stampBytes || o.rate < 1 {
		return o, fmt.Errorf("payload-bytes must be at least %d, and rate at least 1", stampBytes)
	}
	for _, number := range []struct {
		value  *int
		preset int
	}{
		{&o.clients, preset.clients}, {&o.connections, preset.connections}, {&o.batch, preset.batch},
		{&o.backlog, preset.backlog}, {&o.fill, preset.fill},
	} {
		if *number.value == 0 {
			*number.value = number.preset
		}
	}
	if o.workload != workloadMixed {
		o.rate = 0
	} else {
		// The shape does not matter: many producers and few consumers, each with its own connection.
		o.batch, o.clients, o.connections = 1, mixedClients+mixedTakers, mixedClients+mixedTakers
	}
	if o.batch > o.backlog {
		return o, fmt.Errorf("batch %d must not exceed backlog %d", o.batch, o.backlog)
	}
	return o, nil
}

func notify(event string) { fmt.Printf("{\"event\":%q}\n", event) }

func execute(ctx context.Context, o options) (any, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopping, stop := context.WithCancel(ctx)
	defer stop()
	backlog := math.MaxInt
	if o.workload == workloadCycle {
		backlog = o.backlog
	}
	r := &run{
		options: o, cluster: newCluster(o.addresses, o.connections, o.timeout, o.isFollowing),
		tube: "bench-" + runName, started: time.Now(), ctx: ctx, stopping: stopping, stop: stop,
		isEmpty: make(chan struct{}), gate: newGate(backlog),
	}
	defer r.cluster.close()
	finding, cancelFinding := context.WithTimeout(ctx, o.timeout)
	defer cancelFinding()
	if err := r.cluster.findLeader(finding); err != nil {
		return nil, err
	}
	if err := r.createTube(); err != nil {
		return nil, err
	}
	if o.workload == workloadIdle {
		return r.holdIdleStreams()
	}
	loops, err := r.loops()
	if err != nil {
		return nil, err
	}
	window, cpu := r.measure(loops, cancel, notify)
	result := r.merge(window, cpu)
	if o.isDropping {
		if err := r.dropTube(); err != nil {
			return result, err
		}
	}
	return result, nil
}

func main() {
	o, err := parseOptions()
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(2)
	}
	runtime.GOMAXPROCS(threads)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	result, err := execute(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}
