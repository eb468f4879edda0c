// Command taskraft-example is a producer and a consumer in Go, from the generated stubs alone.
//
//	taskraft-example produce TUBE COUNT
//	taskraft-example consume TUBE COUNT
//	taskraft-example work TUBE SLOTS
//	taskraft-example conformance
//
// The client is in client.go. The environment variable TASKRAFT_TARGET has the addresses of the nodes.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	pb "taskraft/examples/stubs/taskraft/v1"
)

func produce(client *Client, tube string, count int) error {
	for number := range count {
		request := &pb.PutTasksRequest{
			Tube:  tube,
			Tasks: []*pb.TaskSpec{{Payload: fmt.Appendf(nil, "task %d", number)}},
		}
		answer, err := client.Put(request)
		if err != nil {
			return err
		}
		for _, item := range answer.Errors {
			return fmt.Errorf("task %d was refused: %s", number, item.Error.Message)
		}
		fmt.Println("put", answer.TaskIds[0])
	}
	return nil
}

func consume(client *Client, tube string, count int) error {
	subscription := client.Subscribe(tube, 10, SessionTTR)
	for range count {
		task, err := subscription.Next(context.Background())
		if err != nil {
			return err
		}
		fmt.Printf("took %d, attempt %d: %s\n", task.Id, task.Attempt, task.Spec.Payload)
		refused, err := subscription.Ack(task.Token)
		if err != nil {
			return err
		}
		for _, item := range refused {
			fmt.Println("the lease ended before the work:", item.Error.Message)
		}
	}
	return subscription.Close()
}

func run() error {
	client, err := Dial()
	if err != nil {
		return err
	}
	defer client.Close()
	if len(os.Args) == 2 && os.Args[1] == "conformance" {
		return conform(client, os.Stdin, os.Stdout)
	}
	if len(os.Args) != 4 {
		return fmt.Errorf("usage: %s produce|consume|work TUBE COUNT, or conformance", os.Args[0])
	}
	count, err := strconv.Atoi(os.Args[3])
	if err != nil {
		return fmt.Errorf("COUNT: %w", err)
	}
	switch os.Args[1] {
	case "produce":
		return produce(client, os.Args[2], count)
	case "work":
		return work(client, os.Args[2], count)
	default:
		return consume(client, os.Args[2], count)
	}
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
