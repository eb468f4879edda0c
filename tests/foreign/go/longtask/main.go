// Command longtask takes one task from a stream, works on it in silence, and acknowledges it on the stream, with
// only the stubs that are generated from the proto files.
//
// Usage: longtask HOST:PORT TUBE WORK_MS KEEPALIVE_MS. A keepalive of 0 keeps all options of the channel at their
// defaults. It prints its observations as one JSON object.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	taskraft "taskraft/foreign/stubs/taskraft/v1"
)

const deadline = 20 * time.Second

// seen is the output of this program.
type seen struct {
	Payload string `json:"payload"`
	Settled string `json:"settled"`
	Errors  int    `json:"errors"`
}

type stream = taskraft.TaskService_SubscribeClient

// fill creates the tube and puts one task into it.
func fill(link *grpc.ClientConn, tube string) error {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	_, err := taskraft.NewTubeServiceClient(link).CreateTube(ctx, &taskraft.CreateTubeRequest{
		RequestId: tube + "-create",
		Tube:      &taskraft.Tube{Name: tube, Kind: taskraft.Tube_FIFO},
	})
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	_, err = taskraft.NewTaskServiceClient(link).PutTasks(ctx, &taskraft.PutTasksRequest{
		RequestId: tube + "-put", Tube: tube,
		Tasks: []*taskraft.TaskSpec{{Payload: []byte("long")}},
	})
	if err != nil {
		return fmt.Errorf("put: %w", err)
	}
	return nil
}

// acknowledgeLater sends nothing while it works, and then acknowledges the task.
func acknowledgeLater(on stream, tube string, token int64, work time.Duration) error {
	time.Sleep(work)
	ack := &taskraft.Settlement_Ack_{Ack: &taskraft.Settlement_Ack{}}
	return on.Send(&taskraft.SubscribeRequest{
		RequestId:   tube + "-ack",
		Settlements: []*taskraft.Settlement{{Tokens: []int64{token}, Action: ack}},
	})
}

// consume works on one task; it fails if the stream ends before the acknowledgement is confirmed.
func consume(link *grpc.ClientConn, tube string, work time.Duration) (seen, error) {
	var result seen
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	on, err := taskraft.NewTaskServiceClient(link).Subscribe(ctx)
	if err != nil {
		return result, fmt.Errorf("subscribe: %w", err)
	}
	err = on.Send(&taskraft.SubscribeRequest{
		Open:   &taskraft.SubscribeRequest_Open{Sources: []*taskraft.TakeSource{{Tube: tube}}},
		Credit: &taskraft.SubscribeRequest_Credit{Tasks: 1},
	})
	if err != nil {
		return result, fmt.Errorf("open: %w", err)
	}
	for {
		answer, err := on.Recv()
		if err != nil {
			return result, fmt.Errorf("receive: %w", err)
		}
		for _, task := range answer.Tasks {
			result.Payload = string(task.Spec.Payload)
			if err := acknowledgeLater(on, tube, task.Token, work); err != nil {
				return result, fmt.Errorf("acknowledge: %w", err)
			}
		}
		for _, settled := range answer.Settled {
			result.Settled, result.Errors = settled.RequestId, len(settled.Errors)
			return result, nil
		}
	}
}

func milliseconds(text string) (time.Duration, error) {
	number, err := strconv.Atoi(text)
	return time.Duration(number) * time.Millisecond, err
}

func run(address, tube, workMs, keepaliveMs string) error {
	work, err := milliseconds(workMs)
	if err != nil {
		return err
	}
	interval, err := milliseconds(keepaliveMs)
	if err != nil {
		return err
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if interval > 0 {
		options = append(options, grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: interval, PermitWithoutStream: true,
		}))
	}
	link, err := grpc.NewClient(address, options...)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer link.Close()
	if err := fill(link, tube); err != nil {
		return err
	}
	result, err := consume(link, tube, work)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, "longtask:", err)
		os.Exit(1)
	}
}
