// Command load drives a taskraft cluster through gRPC and prints what it measured.
//
// It prints lines of JSON: {"event":"begin"} and {"event":"end"} at the borders of the measured window, so
// that whoever reads them can look at the servers at the same moments, and last {"event":"result", ...}.
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
	"strings"
	"syscall"
	"time"
)

// shape is how many clients there are, on how many connections, with how many tasks in each request.
type shape struct{ clients, connections, batch, backlog, fill int }

// shapes are the variants (a), (b) and (c) of the workload.
var shapes = map[string]shape{
	"sequence": {clients: 1, connections: 1, batch: 1, backlog: 100, fill: 4_000},
	"clients":  {clients: 32, connections: 32, batch: 1, backlog: 2_000, fill: 12_000},
	"batches":  {clients: 8, connections: 2, batch: 100, backlog: 5_000, fill: 100_000},
}

// drainGrace is how long calls that are in flight at the end may take before they are cut off.
const drainGrace = 10 * time.Second

func parseOptions() (options, error) {
	var o options
	addresses := flag.String("addresses", "127.0.0.1:7401", "nodes, host:port, comma between")
	flag.StringVar(&o.workload, "workload", workloadPut, "put, take, cycle or mixed")
	flag.StringVar(&o.shape, "shape", "batches", "sequence, clients or batches")
	flag.StringVar(&o.consumer, "consumer", "unary", "unary or stream")
	flag.IntVar(&o.clients, "clients", 0, "clients with one request in flight each (0: as the shape says)")
	flag.IntVar(&o.connections, "connections", 0, "connections that they share (0: as the shape says)")
	flag.IntVar(&o.batch, "batch", 0, "tasks in a request (0: as the shape says)")
	flag.IntVar(&o.backlog, "backlog", 0, "workload cycle: tasks put and not settled (0: as the shape says)")
	flag.IntVar(&o.fill, "fill", 0, "workload take: tasks put beforehand (0: as the shape says)")
	flag.IntVar(&o.rate, "rate", 500, "workload mixed: puts planned per second")
	flag.IntVar(&o.payloadBytes, "payload-bytes", 100, "size of a payload, at least 16")
	flag.DurationVar(&o.warmUp, "warm-up", 500*time.Millisecond, "before anything is counted")
	flag.DurationVar(&o.duration, "duration", 2*time.Second, "of the measured window")
	flag.DurationVar(&o.timeout, "timeout", 10*time.Second, "of a call")
	flag.BoolVar(&o.isFollowing, "follow", true, "speak to the leader; otherwise to all nodes in turn")
	flag.BoolVar(&o.isDropping, "drop", true, "drop the tube at the end")
	flag.Parse()
	o.addresses = strings.Split(*addresses, ",")
	preset, isKnown := shapes[o.shape]
	if !isKnown {
		return o, fmt.Errorf("no shape is named %q", o.shape)
	}
	if o.consumer != "unary" && o.consumer != "stream" {
		return o, fmt.Errorf("no consumer is named %q", o.consumer)
	}
	if o.payloadBytes < stampBytes || o.rate < 1 {
		return o, fmt.Errorf("a payload has at least %d bytes, a rate is at least 1", stampBytes)
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
		// Whatever the shape: many producers, few consumers, each with a connection of its own.
		o.batch, o.clients, o.connections = 1, mixedClients+mixedTakers, mixedClients+mixedTakers
	}
	if o.batch > o.backlog {
		return o, fmt.Errorf("a batch of %d does not fit into a backlog of %d", o.batch, o.backlog)
	}
	return o, nil
}

func notify(event string) { fmt.Printf("{\"event\":%q}\n", event) }

func execute(ctx context.Context, o options) (report, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopping, stop := context.WithCancel(ctx)
	defer stop()
	backlog := math.MaxInt
	if o.workload == workloadCycle {
		backlog = o.backlog
	}
	r := &run{
		options: o, cluster: newCluster(o.addresses, o.connections, o.isFollowing),
		tube: "bench-" + runName, started: time.Now(), ctx: ctx, stopping: stopping, stop: stop,
		isEmpty: make(chan struct{}), gate: newGate(backlog),
	}
	defer r.cluster.close()
	finding, cancelFinding := context.WithTimeout(ctx, o.timeout)
	defer cancelFinding()
	if err := r.cluster.findLeader(finding); err != nil {
		return report{}, err
	}
	if err := r.createTube(); err != nil {
		return report{}, err
	}
	loops, err := r.loops()
	if err != nil {
		return report{}, err
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
