package main

import (
	"context"
	"time"

	"google.golang.org/grpc"

	taskraft "taskraft/load/stubs/taskraft/v1"
)

// takeWait is the maximum wait of a take for its first task.
const takeWait = 500 * time.Millisecond

// put puts one batch of new tasks and returns the number of accepted tasks.
func (w *worker) put(tasks int, planned time.Duration) int {
	request := &taskraft.PutTasksRequest{RequestId: w.requestID(), Tube: w.run.tube}
	for range tasks {
		request.Tasks = append(request.Tasks, newTask(w.run.options.payloadBytes, planned))
	}
	accepted, began := 0, w.run.now()
	w.call(func(ctx context.Context, stub taskraft.TaskServiceClient, header grpc.CallOption) error {
		answer, err := stub.PutTasks(ctx, request, header)
		if err == nil {
			w.record(opPut, began)
			accepted = tasks - w.countItems(answer.Errors)
		}
		return err
	})
	return accepted
}

// take takes up to the given number of tasks; the result is empty if no task was READY in time.
func (w *worker) take(tasks int, wait time.Duration) []*taskraft.Task {
	waitMs := wait.Milliseconds()
	request := &taskraft.TakeTasksRequest{
		RequestId: w.requestID(),
		Sources:   []*taskraft.TakeSource{{Tube: w.run.tube}},
		TasksMax:  int32(tasks),
		WaitMs:    &waitMs,
	}
	var taken []*taskraft.Task
	began := w.run.now()
	w.call(func(ctx context.Context, stub taskraft.TaskServiceClient, header grpc.CallOption) error {
		answer, err := stub.TakeTasks(ctx, request, header)
		if err == nil {
			taken = answer.Tasks
		}
		return err
	})
	if len(taken) > 0 {
		w.record(opTake, began)
	}
	return taken
}

func acknowledge(tasks []*taskraft.Task) []*taskraft.Settlement {
	tokens := make([]int64, len(tasks))
	for place, task := range tasks {
		tokens[place] = task.Token
	}
	return []*taskraft.Settlement{{
		Tokens: tokens,
		Action: &taskraft.Settlement_Ack_{Ack: &taskraft.Settlement_Ack{}},
	}}
}

// ack acknowledges tasks and returns the number of settled tasks.
func (w *worker) ack(tasks []*taskraft.Task) int {
	request := &taskraft.SettleTasksRequest{RequestId: w.requestID(), Settlements: acknowledge(tasks)}
	settled, began := 0, w.run.now()
	w.call(func(ctx context.Context, stub taskraft.TaskServiceClient, header grpc.CallOption) error {
		answer, err := stub.SettleTasks(ctx, request, header)
		if err == nil {
			w.record(opSettle, began)
			settled = len(tasks) - w.countItems(answer.Errors)
		}
		return err
	})
	return settled
}

// putAll puts batches until the run stops; the gate limits the backlog.
func (w *worker) putAll() {
	batch := w.run.options.batch
	for !w.run.isStopping.Load() && w.run.gate.enter(batch) {
		accepted := w.put(batch, w.run.now())
		w.run.gate.leave(batch - accepted)
		if w.run.options.workload == "put" {
			w.confirm(accepted)
		}
	}
}

// takeAll takes and acknowledges batches until the run stops.
func (w *worker) takeAll() {
	for !w.run.isStopping.Load() {
		began := w.run.now()
		tasks := w.take(w.run.options.batch, takeWait)
		w.recordDeliveries(tasks)
		if len(tasks) == 0 {
			continue
		}
		settled := w.ack(tasks)
		w.record(opCycle, began)
		w.finish(settled)
	}
}

// cycleAll puts, takes and acknowledges tasks in a loop.
func (w *worker) cycleAll() {
	batch := w.run.options.batch
	for !w.run.isStopping.Load() {
		began := w.run.now()
		if w.put(batch, began) == 0 {
			continue
		}
		if tasks := w.take(batch, takeWait); len(tasks) > 0 {
			settled := w.ack(tasks)
			w.record(opCycle, began)
			w.confirm(settled)
		}
	}
}

func (w *worker) recordDeliveries(tasks []*taskraft.Task) {
	if w.run.options.workload == "take" {
		return // the tasks were put before the run, so their age is meaningless
	}
	for _, task := range tasks {
		if planned, isOurs := plannedOf(task); isOurs {
			w.record(opDelivery, planned)
		}
	}
}

// finish counts tasks with a confirmed settlement, and lets producers put as many new tasks.
func (w *worker) finish(settled int) {
	w.confirm(settled)
	w.run.gate.leave(settled)
	w.run.countSettled(settled)
}
