package main

import (
	"time"

	taskraft "taskraft/load/stubs/taskraft/v1"
)

// operation is a measured operation.
type operation int

const (
	opPut      operation = iota // a PutTasks call
	opTake                      // a TakeTasks call
	opSettle                    // from a settlement to its confirmation
	opCycle                     // a take and its settlement; in the workload "cycle" in sequence with the put
	opDelivery                  // from the planned time of a put to the delivery of the task
	operations
)

var operationNames = [operations]string{"put", "take", "settle", "cycle", "delivery"}

// recorder holds the measurements of one worker. It records only the window, but errors of the warm-up too.
type recorder struct {
	run        *run
	tasks      int
	calls      int
	retries    int
	errors     map[string]int
	histograms [operations]histogram
}

func newRecorder(r *run) *recorder { return &recorder{run: r, errors: map[string]int{}} }

// record counts one finished operation that began at the given time.
func (c *recorder) record(op operation, began time.Duration) {
	if c.run.isMeasured() {
		c.calls++
		c.histograms[op].add(c.run.now() - began)
	}
}

// confirm counts tasks that completed the workload.
func (c *recorder) confirm(tasks int) {
	if c.run.isMeasured() {
		c.tasks += tasks
	}
}

func (c *recorder) countError(reason string) { c.errors[reason]++ }

// countItems counts the refused items of a list and returns their number.
func (c *recorder) countItems(refused []*taskraft.ItemError) int {
	for _, item := range refused {
		c.countError("item " + item.GetError().GetReason().String())
	}
	return len(refused)
}

// report is the result of a run, printed as one line of JSON.
type report struct {
	Event          string             `json:"event"`
	Workload       string             `json:"workload"`
	Shape          string             `json:"shape"`
	Consumer       string             `json:"consumer"`
	Clients        int                `json:"clients"`
	Connections    int                `json:"connections"`
	Batch          int                `json:"batch"`
	PayloadBytes   int                `json:"payload_bytes"`
	RatePerSecond  int                `json:"rate_per_second,omitempty"`
	Seconds        float64            `json:"seconds"`
	Tasks          int                `json:"tasks"`
	TasksPerSecond float64            `json:"tasks_per_second"`
	Calls          int                `json:"calls"`
	CPUSeconds     float64            `json:"cpu_seconds"`
	Latency        map[string]latency `json:"latency"`
	Errors         map[string]int     `json:"errors"`
	Retries        int                `json:"retries"`
	LeaderChanges  int                `json:"leader_changes"`
	Planned        int                `json:"planned,omitempty"`
	RanDry         bool               `json:"ran_dry"`
}

// merge combines the measurements of all workers.
func (r *run) merge(window, cpu time.Duration) report {
	merged := newRecorder(r)
	for _, one := range r.workers {
		merged.tasks += one.tasks
		merged.calls += one.calls
		merged.retries += one.retries
		for reason, count := range one.errors {
			merged.errors[reason] += count
		}
		for op := range merged.histograms {
			merged.histograms[op].merge(&one.histograms[op])
		}
	}
	latencies := map[string]latency{}
	for op := range merged.histograms {
		if merged.histograms[op].total > 0 {
			latencies[operationNames[op]] = merged.histograms[op].summary()
		}
	}
	o := r.options
	return report{
		Event: "result", Workload: o.workload, Shape: o.shape, Consumer: o.consumer,
		Clients: o.clients, Connections: o.connections, Batch: o.batch,
		PayloadBytes: o.payloadBytes, RatePerSecond: o.rate,
		Seconds: window.Seconds(), Tasks: merged.tasks,
		TasksPerSecond: float64(merged.tasks) / window.Seconds(),
		Calls:          merged.calls, CPUSeconds: cpu.Seconds(), Latency: latencies,
		Errors: merged.errors, Retries: merged.retries, LeaderChanges: r.cluster.changes,
		Planned: int(r.planned.Load()),
		RanDry:  r.filled > 0 && int(r.settled.Load()) >= r.filled,
	}
}
