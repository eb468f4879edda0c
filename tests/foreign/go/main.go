// Command foreign puts, takes, acknowledges, provokes a typed error and subscribes, with only the stubs that are
// generated from the proto files. Usage: foreign HOST:PORT TUBE. It prints its observations as one JSON object.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	taskraft "taskraft/foreign/stubs/taskraft/v1"
)

const deadline = 10 * time.Second

// refusal is the machine-readable part of an error.
type refusal struct {
	Code   string `json:"code"`
	Reason string `json:"reason"`
	Domain string `json:"domain"`
	Tube   string `json:"tube"`
}

type streamed struct {
	Task    [2]string `json:"task"`
	Settled string    `json:"settled"`
	Errors  int       `json:"errors"`
}

// seen is the output of this program. Ids are strings, because JSON numbers do not have 64 bits.
type seen struct {
	Put      []string    `json:"put"`
	Repeated []string    `json:"repeated"`
	Taken    [][2]string `json:"taken"`
	Refused  int         `json:"refused"`
	Late     [][2]any    `json:"late"`
	Stream   streamed    `json:"stream"`
	Refusal  refusal     `json:"refusal"`
}

func texts(ids []int64) []string {
	found := []string{}
	for _, id := range ids {
		found = append(found, strconv.FormatInt(id, 10))
	}
	return found
}

func describe(task *taskraft.Task) [2]string {
	return [2]string{strconv.FormatInt(task.Id, 10), string(task.Spec.Payload)}
}

func acknowledge(tokens ...int64) []*taskraft.Settlement {
	ack := &taskraft.Settlement_Ack_{Ack: &taskraft.Settlement_Ack{}}
	return []*taskraft.Settlement{{Tokens: tokens, Action: ack}}
}

// client makes the calls of this program; the first error ends the program.
type client struct {
	ctx   context.Context
	tube  string
	tasks taskraft.TaskServiceClient
	tubes taskraft.TubeServiceClient
}

func (c *client) putAndTake(result *seen) error {
	_, err := c.tubes.CreateTube(c.ctx, &taskraft.CreateTubeRequest{
		RequestId: c.tube + "-create",
		Tube:      &taskraft.Tube{Name: c.tube, Kind: taskraft.Tube_FIFOTTL},
	})
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	put := &taskraft.PutTasksRequest{RequestId: c.tube + "-put", Tube: c.tube}
	for _, text := range []string{"first", "second", "third"} {
		put.Tasks = append(put.Tasks, &taskraft.TaskSpec{Payload: []byte(text)})
	}
	for _, ids := range []*[]string{&result.Put, &result.Repeated} {
		answer, err := c.tasks.PutTasks(c.ctx, put)
		if err != nil {
			return fmt.Errorf("put: %w", err)
		}
		*ids = texts(answer.TaskIds)
	}
	waitMs := int64(5_000)
	taken, err := c.tasks.TakeTasks(c.ctx, &taskraft.TakeTasksRequest{
		RequestId: c.tube + "-take", Sources: []*taskraft.TakeSource{{Tube: c.tube}},
		TasksMax: 2, WaitMs: &waitMs,
	})
	if err != nil {
		return fmt.Errorf("take: %w", err)
	}
	tokens := []int64{}
	for _, task := range taken.Tasks {
		result.Taken = append(result.Taken, describe(task))
		tokens = append(tokens, task.Token)
	}
	return c.acknowledgeTwice(tokens, result)
}

// acknowledgeTwice settles leases twice; the second time they are stale.
func (c *client) acknowledgeTwice(tokens []int64, result *seen) error {
	for _, name := range []string{"-ack", "-late"} {
		answer, err := c.tasks.SettleTasks(c.ctx, &taskraft.SettleTasksRequest{
			RequestId: c.tube + name, Settlements: acknowledge(tokens...),
		})
		if err != nil {
			return fmt.Errorf("settle: %w", err)
		}
		if name == "-ack" {
			result.Refused = len(answer.Errors)
			continue
		}
		for _, item := range answer.Errors {
			result.Late = append(result.Late, [2]any{item.Item, item.Error.Reason.String()})
		}
	}
	return nil
}

// subscribe takes one task from the stream and acknowledges it there.
func (c *client) subscribe(result *seen) error {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	stream, err := c.tasks.Subscribe(ctx)
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	for _, request := range []*taskraft.SubscribeRequest{
		{Open: &taskraft.SubscribeRequest_Open{Sources: []*taskraft.TakeSource{{Tube: c.tube}}}},
		{Credit: &taskraft.SubscribeRequest_Credit{Tasks: 1}},
	} {
		if err := stream.Send(request); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
	for {
		answer, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		for _, task := range answer.Tasks {
			result.Stream.Task = describe(task)
			err := stream.Send(&taskraft.SubscribeRequest{
				RequestId: c.tube + "-stream", Settlements: acknowledge(task.Token),
			})
			if err != nil {
				return fmt.Errorf("settle on the stream: %w", err)
			}
		}
		for _, settled := range answer.Settled {
			result.Stream.Settled, result.Stream.Errors = settled.RequestId, len(settled.Errors)
			return nil
		}
	}
}

// meetRefusal puts into a missing tube and returns the error.
func (c *client) meetRefusal(result *seen) error {
	_, err := c.tasks.PutTasks(c.ctx, &taskraft.PutTasksRequest{
		RequestId: c.tube + "-nowhere", Tube: c.tube + "-nowhere",
		Tasks: []*taskraft.TaskSpec{{Payload: []byte("lost")}},
	})
	failure := status.Convert(err)
	if failure.Code() == codes.NotFound {
		result.Refusal.Code = "NOT_FOUND"
	}
	for _, detail := range failure.Details() {
		if info, isInfo := detail.(*errdetails.ErrorInfo); isInfo {
			result.Refusal.Reason = info.Reason
			result.Refusal.Domain = info.Domain
			result.Refusal.Tube = info.Metadata["tube"]
			return nil
		}
	}
	return fmt.Errorf("a put into a missing tube returned %w", err)
}

func run(address, tube string) error {
	link, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer link.Close()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	c := &client{
		ctx: ctx, tube: tube,
		tasks: taskraft.NewTaskServiceClient(link), tubes: taskraft.NewTubeServiceClient(link),
	}
	var result seen
	for _, step := range []func(*seen) error{c.putAndTake, c.subscribe, c.meetRefusal} {
		if err := step(&result); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "foreign:", err)
		os.Exit(1)
	}
}
