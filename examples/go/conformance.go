package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	pb "taskraft/examples/stubs/taskraft/v1"
)

// command is a command of `taskraft conformance`. Numbers of 64 bits are texts, and bytes are Base64.
type command struct {
	Call        string        `json:"call"`
	Tube        string        `json:"tube"`
	Tasks       []commandTask `json:"tasks"`
	RequestID   string        `json:"request_id"`
	ClientID    string        `json:"client_id"`
	TasksMax    int32         `json:"tasks_max"`
	WaitMs      int64         `json:"wait_ms,string"`
	TtrMs       *int64        `json:"ttr_ms,string"`
	Action      string        `json:"action"`
	Tokens      []string      `json:"tokens"`
	DelayMs     int64         `json:"delay_ms,string"`
	IncrementMs int64         `json:"increment_ms,string"`
	Credit      int32         `json:"credit"`
	SessionTTR  *int64        `json:"session_ttr_ms,string"`
}

type commandTask struct {
	Payload  []byte            `json:"payload"`
	Headers  map[string][]byte `json:"headers"`
	Priority *int64            `json:"priority,string"`
	DelayMs  *int64            `json:"delay_ms,string"`
}

type shownTask struct {
	ID      string            `json:"id"`
	Token   string            `json:"token"`
	Attempt int32             `json:"attempt"`
	Payload []byte            `json:"payload"`
	Headers map[string][]byte `json:"headers"`
}

type refusedItem struct {
	Item   int32  `json:"item"`
	Reason string `json:"reason"`
}

func shown(task *pb.Task) *shownTask {
	if task == nil {
		return nil
	}
	payload := task.Spec.Payload
	if payload == nil {
		payload = []byte{}
	}
	return &shownTask{
		ID: strconv.FormatInt(task.Id, 10), Token: strconv.FormatInt(task.Token, 10), Attempt: task.Attempt,
		Payload: payload, Headers: task.Spec.Headers,
	}
}

func refusedItems(errors []*pb.ItemError) []refusedItem {
	items := []refusedItem{}
	for _, one := range errors {
		items = append(items, refusedItem{one.Item, one.Error.Reason.String()})
	}
	return items
}

func numbers(texts []string) ([]int64, error) {
	found := []int64{}
	for _, text := range texts {
		number, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("token: %w", err)
		}
		found = append(found, number)
	}
	return found, nil
}

// conformer executes the commands of the conformance suite.
type conformer struct {
	client       *Client
	subscription *Subscription
}

func (c *conformer) put(one *command) (any, error) {
	request := &pb.PutTasksRequest{RequestId: one.RequestID, ClientId: one.ClientID, Tube: one.Tube}
	for _, task := range one.Tasks {
		request.Tasks = append(request.Tasks, &pb.TaskSpec{
			Payload: task.Payload, Headers: task.Headers, Priority: task.Priority, DelayMs: task.DelayMs,
		})
	}
	answer, err := c.client.Put(request)
	if err != nil {
		return nil, err
	}
	ids := []string{}
	for _, id := range answer.TaskIds {
		ids = append(ids, strconv.FormatInt(id, 10))
	}
	return map[string]any{"task_ids": ids, "errors": refusedItems(answer.Errors)}, nil
}

func (c *conformer) take(one *command) (any, error) {
	answer, err := c.client.Take(&pb.TakeTasksRequest{
		Sources: []*pb.TakeSource{{Tube: one.Tube}}, TasksMax: one.TasksMax, WaitMs: &one.WaitMs, TtrMs: one.TtrMs,
	})
	if err != nil {
		return nil, err
	}
	tasks := []*shownTask{}
	for _, task := range answer.Tasks {
		tasks = append(tasks, shown(task))
	}
	return map[string]any{"tasks": tasks}, nil
}

func (c *conformer) settle(one *command) (any, error) {
	tokens, err := numbers(one.Tokens)
	if err != nil {
		return nil, err
	}
	settlement := &pb.Settlement{Tokens: tokens}
	switch one.Action {
	case "ack":
		settlement = ack(tokens...)
	case "release":
		settlement.Action = &pb.Settlement_Release_{Release: &pb.Settlement_Release{DelayMs: &one.DelayMs}}
	case "bury":
		settlement.Action = &pb.Settlement_Bury_{Bury: &pb.Settlement_Bury{}}
	case "touch":
		settlement.Action = &pb.Settlement_Touch_{Touch: &pb.Settlement_Touch{IncrementMs: one.IncrementMs}}
	}
	answer, err := c.client.Settle(settlement)
	if err != nil {
		return nil, err
	}
	return map[string]any{"errors": refusedItems(answer.Errors)}, nil
}

func (c *conformer) execute(one *command) (any, error) {
	switch one.Call {
	case "put":
		return c.put(one)
	case "take":
		return c.take(one)
	case "settle":
		return c.settle(one)
	case "subscribe":
		ttr := SessionTTR
		if one.SessionTTR != nil {
			ttr = time.Duration(*one.SessionTTR) * time.Millisecond
		}
		c.subscription = c.client.Subscribe(one.Tube, one.Credit, ttr)
		return map[string]any{}, nil
	case "next":
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(one.WaitMs)*time.Millisecond)
		defer cancel()
		task, err := c.subscription.Next(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			return map[string]any{"task": nil}, nil
		} else if err != nil {
			return nil, err
		}
		return map[string]any{"task": shown(task)}, nil
	case "stream_ack":
		tokens, err := numbers(one.Tokens)
		if err != nil {
			return nil, err
		}
		refused, err := c.subscription.Ack(tokens...)
		return map[string]any{"errors": refusedItems(refused)}, err
	case "unsubscribe":
		return map[string]any{}, c.subscription.Close()
	default:
		return nil, fmt.Errorf("there is no command %q", one.Call)
	}
}

// conform answers each line of the input, a command of the conformance suite, with one line.
func conform(client *Client, input io.Reader, output io.Writer) error {
	lines := bufio.NewReader(input)
	answers := json.NewEncoder(output)
	executor := &conformer{client: client}
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		one := &command{}
		if err := json.Unmarshal(line, one); err != nil {
			return fmt.Errorf("command: %w", err)
		}
		answer, err := executor.execute(one)
		var refusal *Refusal
		if errors.As(err, &refusal) {
			answer = map[string]any{"error": refusal}
		} else if err != nil {
			return err
		}
		if err := answers.Encode(answer); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
}
