package main

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"time"

	taskraft "taskraft/load/stubs/taskraft/v1"
)

// stampBytes is the size of the planned put time at the start of a payload, in hexadecimal nanoseconds.
const stampBytes = 16

const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

// randomText returns random letters and digits, which compress badly.
var randomText = func() []byte {
	text := make([]byte, 1<<20)
	for place := range text {
		text[place] = alphabet[rand.IntN(len(alphabet))]
	}
	return text
}()

// newTask returns a task whose payload starts with the planned time of its put.
func newTask(payloadBytes int, planned time.Duration) *taskraft.TaskSpec {
	payload := make([]byte, payloadBytes)
	for filled := stampBytes; filled < payloadBytes; {
		filled += copy(payload[filled:], randomText[rand.IntN(len(randomText)/2):])
	}
	var stamp [stampBytes / 2]byte
	binary.BigEndian.PutUint64(stamp[:], uint64(planned))
	hex.Encode(payload, stamp[:])
	return &taskraft.TaskSpec{Payload: payload}
}

// plannedOf returns the time that newTask wrote.
func plannedOf(task *taskraft.Task) (time.Duration, bool) {
	var stamp [stampBytes / 2]byte
	payload := task.GetSpec().GetPayload()
	if len(payload) < stampBytes {
		return 0, false
	}
	if _, err := hex.Decode(stamp[:], payload[:stampBytes]); err != nil {
		return 0, false
	}
	return time.Duration(binary.BigEndian.Uint64(stamp[:])), true
}
