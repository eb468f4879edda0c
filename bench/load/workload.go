package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	taskraft "taskraft/load/stubs/taskraft/v1"
)

// The workloads; ../README.md describes them.
const (
	workloadPut   = "put"
	workloadTake  = "take"
	workloadCycle = "cycle"
	workloadMixed = "mixed"
	workloadIdle  = "idle"
)

const (
	fillWorkers  = 8
	fillBatch    = 500
	mixedClients = 32
	mixedTakers  = 8
	// streamBatches is the credit of a stream in batches, so that the next batch is in flight while one is
	// being acknowledged.
	streamBatches = 4
)

// fill puts the tasks that the workload takes, before the measurement.
func (r *run) fill(tasks int) error {
	var filling sync.WaitGroup
	shares := make([]int, fillWorkers)
	for slot := range shares {
		filling.Go(func() {
			w := &worker{recorder: newRecorder(r), run: r, slot: slot}
			share := tasks / fillWorkers
			for shares[slot] < share && r.ctx.Err() == nil {
				shares[slot] += w.put(min(fillBatch, share-shares[slot]), r.now())
			}
		})
	}
	filling.Wait()
	for _, share := range shares {
		r.filled += share
	}
	if err := r.ctx.Err(); err != nil {
		return fmt.Errorf("put only %d of %d tasks: %w", r.filled, tasks, err)
	}
	return nil
}

// consumers returns loops that take and acknowledge, with unary calls or with streams.
func (r *run) consumers(count, firstSlot int) []func() {
	loops := []func(){}
	if r.options.consumer == "stream" {
		count = min(count, r.options.connections)
	}
	for slot := range count {
		w := r.newWorker(firstSlot + slot)
		if r.options.consumer == "stream" {
			loops = append(loops, func() { w.subscribeAll(r.streamCredit()) })
		} else {
			loops = append(loops, w.takeAll)
		}
	}
	return loops
}

func (r *run) streamCredit() int {
	if r.options.batch == 1 {
		return 1
	}
	return streamBatches * r.options.batch
}

func (r *run) producers(count int) []func() {
	loops := []func(){}
	for slot := range count {
		loops = append(loops, r.newWorker(slot).putAll)
	}
	return loops
}

// loops returns the loops of the workload.
func (r *run) loops() ([]func(), error) {
	clients := r.options.clients
	switch r.options.workload {
	case workloadPut:
		return r.producers(clients), nil
	case workloadTake:
		return r.consumers(clients, 0), r.fill(r.options.fill)
	case workloadCycle:
		if clients == 1 {
			return []func(){r.newWorker(0).cycleAll}, nil
		}
		producing := (clients + 1) / 2
		return append(r.producers(producing), r.consumers(clients-producing, producing)...), nil
	case workloadMixed:
		return append(r.openLoop(), r.consumers(mixedTakers, mixedClients)...), nil
	default:
		return nil, fmt.Errorf("unknown workload %q", r.options.workload)
	}
}

// openLoop returns producers in an open loop: one plans puts at the given rate, independent of the responses,
// and the others make them. Latencies count from the planned time, so a stall of the server counts for all
// puts that waited.
func (r *run) openLoop() []func() {
	plans := make(chan time.Duration, r.options.rate*int(1+(r.options.warmUp+r.options.duration)/time.Second))
	loops := []func(){func() {
		defer close(plans)
		interval := time.Second / time.Duration(r.options.rate)
		for next := r.now(); !r.isStopping.Load(); next += interval {
			rest(r.ctx, next-r.now())
			if r.isMeasured() {
				r.planned.Add(1)
			}
			select {
			case plans <- next:
			default:
				return // more puts wait than the whole run plans; the report shows it
			}
		}
	}}
	for slot := range mixedClients {
		w := r.newWorker(slot)
		loops = append(loops, func() {
			for plan := range plans {
				if r.isStopping.Load() {
					return
				}
				w.put(1, plan)
			}
		})
	}
	return loops
}

// createTube creates the tube of this run.
func (r *run) createTube() error {
	link, _, err := r.cluster.link(0)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.ctx, r.options.timeout)
	defer cancel()
	_, err = taskraft.NewTubeServiceClient(link).CreateTube(ctx, &taskraft.CreateTubeRequest{
		RequestId: r.tube + "-create",
		Tube:      &taskraft.Tube{Name: r.tube, Kind: taskraft.Tube_FIFO},
	})
	if err != nil {
		return fmt.Errorf("create the tube %s: %w", r.tube, err)
	}
	return nil
}

// dropTube removes the tube with its remaining tasks.
func (r *run) dropTube() error {
	link, _, err := r.cluster.link(0)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.options.timeout)
	defer cancel()
	_, err = taskraft.NewTubeServiceClient(link).DropTube(ctx, &taskraft.DropTubeRequest{
		RequestId: runName + "-drop", Name: r.tube, Force: true,
	})
	if err != nil {
		return fmt.Errorf("drop the tube %s: %w", r.tube, err)
	}
	return nil
}
