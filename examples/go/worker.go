package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	pb "taskraft/examples/stubs/taskraft/v1"
)

// handle processes one task; an error fails the attempt.
func handle(task *pb.Task) error {
	var mail struct{ To string }
	if err := json.Unmarshal(task.Spec.Payload, &mail); err != nil {
		return fmt.Errorf("the payload is not JSON: %w", err)
	}
	if mail.To == "" {
		return errors.New("the address is missing")
	}
	fmt.Println("sent to", mail.To)
	return nil
}

// work processes the tasks of a tube, several at a time, until SIGTERM or Ctrl-C. It finishes the tasks in
// progress, and returns the others at once.
func work(client *Client, tube string, slots int) error {
	stopped, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	subscription := client.Subscribe(tube, int32(slots), SessionTTR)
	fmt.Println("working on", tube)
	var running sync.WaitGroup
	for range slots {
		running.Go(func() {
			for {
				task, err := subscription.Next(stopped)
				if err != nil {
					if stopped.Err() == nil {
						fmt.Fprintln(os.Stderr, "the subscription has ended:", err)
					}
					return
				}
				finish(subscription, task, handle(task))
			}
		})
	}
	running.Wait()
	return subscription.Close()
}

// finish settles a task: an acknowledgement after success, a release with the failure otherwise.
func finish(subscription *Subscription, task *pb.Task, failure error) {
	var refused []*pb.ItemError
	var err error
	if failure == nil {
		refused, err = subscription.Ack(task.Token)
	} else {
		fmt.Fprintf(os.Stderr, "task %d failed at attempt %d: %v\n", task.Id, task.Attempt, failure)
		refused, err = subscription.Release(task.Token, failure)
	}
	for _, item := range refused {
		// The lease ended before the work: another consumer may process the task again.
		fmt.Fprintf(os.Stderr, "task %d: %s\n", task.Id, item.Error.Message)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "task %d: %v\n", task.Id, err)
	}
}
