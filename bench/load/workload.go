package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	taskraft "taskraft/load/stubs/taskraft/v1"
)

// The workloads; README.md of the folder above says what each of them measures.
const (
	workloadPut   = "put"
	workloadTake  = "take"
	workloadCycle = "cycle"
	workloadMixed = "mixed"
)

const (
	fillWorkers  = 8
	fillBatch    = 500
	mixedClients = 32
	mixedTakers  = 8
	// streamBatches is how many batches of credit a stream has: enough that the next batch is on its way while
	// one is being acknowledged.
	streamBatches = 4
)

// fill puts the tasks that the workload takes, before anything is measured.
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
		return fmt.Errorf("filled %d of %d tasks: %w", r.filled, tasks, err)
	}
	return nil
}

// consumers are loops that take and acknowledge, by the calls or by the stream.
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

// loops are the clients of the workload that the command line names.
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
		return nil, fmt.Errorf("no workload is named %q", r.options.workload)
	}
}

// openLoop are producers that do not wait for each other: one plans puts at the given rate, whatever the answers do, and the
// others make them. Latencies count from the plan, so a server that stalls is charged for all that waited.
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
				return // more puts wait than the whole run has: its numbers say so
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

// createTube makes the tube of this run, which no other run uses.
func (r *run) createTube() error {
	link, _, err := r.cluster.link(0)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.ctx, r.options.timeout)
	defer cancel()
	_, err = taskraft.NewTubeServiceClient(link).CreateTube(ctx, &taskraft.CreateTubeRequest{
		RequestId: runName + "-create",
		Tube:      &taskraft.Tube{Name: r.tube, Kind: taskraft.Tube_FIFO},
	})
	if err != nil {
		return fmt.Errorf("create the tube %s: %w", r.tube, err)
	}
	return nil
}

// dropTube removes the tube with what is left in it.
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
