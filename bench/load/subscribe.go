package main

import (
	"context"
	"errors"
	"io"
	"time"

	taskraft "taskraft/load/stubs/taskraft/v1"
)

// pendingSettlement is an unconfirmed settlement.
type pendingSettlement struct {
	tasks int
	began time.Duration
}

// subscribeAll takes and acknowledges on one stream after another until the run stops.
func (w *worker) subscribeAll(credit int) {
	for !w.run.isStopping.Load() && w.run.ctx.Err() == nil {
		link, address, err := w.run.cluster.link(w.slot)
		if err == nil {
			err = w.subscribeOnce(taskraft.NewTaskServiceClient(link), credit)
		}
		if err != nil && !w.run.isStopping.Load() && w.run.ctx.Err() == nil {
			w.countError(reasonOf(err))
			w.retries++
			w.run.cluster.failed(address)
			rest(w.run.ctx, retryRest)
		}
	}
}

// subscribeOnce uses one stream until it ends or the run stops. The open credit never exceeds the given credit:
// the message that acknowledges a task grants its credit again.
func (w *worker) subscribeOnce(stub taskraft.TaskServiceClient, credit int) error {
	ctx, cancel := context.WithCancel(w.run.ctx)
	defer cancel()
	stopWhenClosed := context.AfterFunc(w.run.stopping, cancel)
	defer stopWhenClosed()
	stream, err := stub.Subscribe(ctx)
	if err != nil {
		return err
	}
	open := &taskraft.SubscribeRequest_Open{Sources: []*taskraft.TakeSource{{Tube: w.run.tube}}}
	if err := stream.Send(&taskraft.SubscribeRequest{Open: open}); err != nil {
		return endOf(stream, err)
	}
	grant := &taskraft.SubscribeRequest_Credit{Tasks: int32(credit)}
	if err := stream.Send(&taskraft.SubscribeRequest{Credit: grant}); err != nil {
		return endOf(stream, err)
	}
	pending := map[string]pendingSettlement{}
	for {
		answer, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, settled := range answer.Settled {
			w.settledOnStream(pending, settled)
		}
		if away := answer.GoAway; away != nil {
			w.run.cluster.lead(away.Leader)
			return nil
		}
		if reply := w.replyTo(answer, pending); reply != nil {
			if err := stream.Send(reply); err != nil {
				return endOf(stream, err)
			}
		}
	}
}

// endOf returns why a stream refused a message; the client library reports it only to the receiver.
func endOf(stream taskraft.TaskService_SubscribeClient, err error) error {
	if !errors.Is(err, io.EOF) {
		return err
	}
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
	}
}

// replyTo returns the acknowledgement of tasks or the reply to a heartbeat; nil if there is none.
func (w *worker) replyTo(
	answer *taskraft.SubscribeResponse, pending map[string]pendingSettlement,
) *taskraft.SubscribeRequest {
	if len(answer.Tasks) == 0 {
		if answer.Heartbeat == nil {
			return nil
		}
		return &taskraft.SubscribeRequest{Heartbeat: true}
	}
	w.recordDeliveries(answer.Tasks)
	id := w.requestID()
	pending[id] = pendingSettlement{tasks: len(answer.Tasks), began: w.run.now()}
	return &taskraft.SubscribeRequest{
		RequestId:   id,
		Settlements: acknowledge(answer.Tasks),
		Credit:      &taskraft.SubscribeRequest_Credit{Tasks: int32(len(answer.Tasks))},
	}
}

func (w *worker) settledOnStream(
	pending map[string]pendingSettlement, settled *taskraft.SubscribeResponse_Settled,
) {
	ours, isKnown := pending[settled.RequestId]
	if !isKnown {
		w.countError("answer to a settlement that was not sent")
		return
	}
	delete(pending, settled.RequestId)
	if settled.Error != nil {
		w.countError(settled.Error.Reason.String())
		return
	}
	w.record(opSettle, ours.began)
	w.finish(ours.tasks - w.countItems(settled.Errors))
}
