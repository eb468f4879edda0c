package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// wireMessageBytes is the maximum size of a request on a wire: one frame of HTTP/2.
	wireMessageBytes = 16 << 10
	// wireWindow is the flow-control window for answers, of the connection and of each stream.
	wireWindow = 1 << 30
	// prefixBytes is the length of the prefix of a message: whether it is compressed, and its length.
	prefixBytes = 5
	// streamsMax is the last stream of a wire; the next call dials a new one.
	streamsMax = 1 << 30
)

var errWindowFull = errors.New("the window of the connection is full")

// wire is one HTTP/2 connection for unary calls of gRPC.
//
// A caller writes its request, and then reads the connection itself until its answer is complete, so a call
// needs no other goroutine. While several callers share the wire, one of them reads for all.
type wire struct {
	conn    net.Conn
	timeout time.Duration

	mu      sync.Mutex // guards the fields up to broken, and all writing
	out     *bufio.Writer
	writer  *http2.Framer
	headers bytes.Buffer
	encoder *hpack.Encoder
	last    uint32
	window  int64
	calls   map[uint32]*wireCall
	broken  error

	// turn holds one token; its holder reads the connection and uses the fields below.
	turn      chan struct{}
	reader    *http2.Framer
	decoder   *hpack.Decoder
	decoding  *wireCall
	consumed  uint32
	readUntil time.Time
}

// dialWire connects to an address and sends the opening of HTTP/2.
func dialWire(ctx context.Context, address string, timeout time.Duration) (*wire, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	w := &wire{
		conn: conn, timeout: timeout, out: bufio.NewWriterSize(conn, 2*wireMessageBytes),
		window: 65_535, calls: map[uint32]*wireCall{}, turn: make(chan struct{}, 1),
	}
	w.writer = http2.NewFramer(w.out, nil)
	w.reader = http2.NewFramer(io.Discard, bufio.NewReaderSize(conn, 64<<10))
	w.reader.SetReuseFrames()
	w.encoder = hpack.NewEncoder(&w.headers)
	w.decoder = hpack.NewDecoder(4096, w.header)
	_, _ = w.out.WriteString(http2.ClientPreface) // an error stays in the writer until Flush
	_ = w.writer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: wireWindow})
	_ = w.writer.WriteWindowUpdate(0, wireWindow)
	if err := w.out.Flush(); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("open HTTP/2 to %s: %w", address, err)
	}
	w.turn <- struct{}{}
	return w, nil
}

// call makes one unary call. It returns errWindowFull if the request does not fit into the window now.
func (w *wire) call(authority, method string, request []byte) (*wireCall, error) {
	call := &wireCall{done: make(chan struct{}, 1), code: codes.Unknown}
	stream, err := w.send(authority, method, request, call)
	if err != nil {
		return nil, err
	}
	for {
		select {
		case <-call.done:
			return call, call.err
		case <-w.turn:
			if err := w.readUntilDone(call); err != nil {
				w.fail(fmt.Errorf("call %d: %w", stream, err))
			}
			w.turn <- struct{}{}
		}
	}
}

// send writes the frames of a request and registers the call.
func (w *wire) send(authority, method string, request []byte, call *wireCall) (uint32, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		return 0, w.broken
	}
	if w.window < int64(len(request)) {
		return 0, errWindowFull
	}
	w.window -= int64(len(request))
	w.last += 2
	stream := w.last - 1
	w.calls[stream] = call
	w.headers.Reset()
	for _, field := range [...]hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"},
		{Name: ":path", Value: method}, {Name: ":authority", Value: authority},
		{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
		{Name: "user-agent", Value: "taskraft-load"},
		{Name: "grpc-timeout", Value: strconv.FormatInt(w.timeout.Milliseconds(), 10) + "m"},
	} {
		_ = w.encoder.WriteField(field) // a bytes.Buffer accepts everything
	}
	_ = w.writer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: stream, BlockFragment: w.headers.Bytes(), EndHeaders: true,
	})
	_ = w.writer.WriteData(stream, true, request)
	if err := w.out.Flush(); err != nil {
		// The callers that wait learn of the end from their reader.
		_ = w.conn.Close()
		delete(w.calls, stream)
		w.broken = status.Error(codes.Unavailable, err.Error())
	}
	return stream, w.broken
}

// readUntilDone reads frames until a call has its status.
func (w *wire) readUntilDone(call *wireCall) error {
	for !call.ended {
		// A deadline of its own for each call would cost a timer; the extra second does not matter.
		if now := time.Now(); w.readUntil.Sub(now) < w.timeout {
			w.readUntil = now.Add(w.timeout + time.Second)
			_ = w.conn.SetReadDeadline(w.readUntil) // an error means a closed connection, which the read reports
		}
		frame, err := w.reader.ReadFrame()
		if err != nil {
			return err
		}
		if err := w.accept(frame); err != nil {
			return err
		}
	}
	return nil
}

func (w *wire) accept(frame http2.Frame) error {
	switch frame := frame.(type) {
	case *http2.HeadersFrame:
		call := w.callOf(frame.StreamID)
		w.decoding = call
		if _, err := w.decoder.Write(frame.HeaderBlockFragment()); err != nil {
			return err
		}
		if !frame.HeadersEnded() {
			return errors.New("the server sent a CONTINUATION, which this client does not read")
		}
		if frame.StreamEnded() {
			w.end(frame.StreamID, call)
		}
		return w.decoder.Close()
	case *http2.DataFrame:
		call := w.callOf(frame.StreamID)
		call.answer = append(call.answer, frame.Data()...)
		return w.consume(frame.Length)
	case *http2.RSTStreamFrame:
		call := w.callOf(frame.StreamID)
		call.code, call.text = codes.Unavailable, "the server reset the call: "+frame.ErrCode.String()
		w.end(frame.StreamID, call)
	case *http2.GoAwayFrame:
		return fmt.Errorf("the server closes the connection: %s %s", frame.ErrCode, frame.DebugData())
	case *http2.WindowUpdateFrame:
		if frame.StreamID == 0 {
			w.mu.Lock()
			w.window += int64(frame.Increment)
			w.mu.Unlock()
		}
	case *http2.SettingsFrame:
		if !frame.IsAck() {
			return w.reply(w.writer.WriteSettingsAck)
		}
	case *http2.PingFrame:
		if !frame.IsAck() {
			return w.reply(func() error { return w.writer.WritePing(true, frame.Data) })
		}
	}
	return nil
}

// reply writes one frame.
func (w *wire) reply(write func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := write(); err != nil {
		return err
	}
	return w.out.Flush()
}

// consume gives the server new room in the window of the connection once half of it is used.
func (w *wire) consume(size uint32) error {
	w.consumed += size
	if w.consumed < wireWindow/2 {
		return nil
	}
	size, w.consumed = w.consumed, 0
	return w.reply(func() error { return w.writer.WriteWindowUpdate(0, size) })
}

// callOf returns the call of a stream; frames of a call that has ended go to a call that nobody reads.
func (w *wire) callOf(stream uint32) *wireCall {
	w.mu.Lock()
	defer w.mu.Unlock()
	if call, isKnown := w.calls[stream]; isKnown {
		return call
	}
	return &wireCall{done: make(chan struct{}, 1)}
}

// header notes a header of the call whose headers are being read.
func (w *wire) header(field hpack.HeaderField) {
	switch field.Name {
	case leaderKey:
		w.decoding.leader = field.Value
	case "grpc-status":
		if number, err := strconv.Atoi(field.Value); err == nil {
			w.decoding.code = codes.Code(number)
		}
	case "grpc-message":
		w.decoding.text = field.Value
	case "grpc-status-details-bin":
		w.decoding.detail = field.Value
	}
}

func (w *wire) end(stream uint32, call *wireCall) {
	w.mu.Lock()
	delete(w.calls, stream)
	w.mu.Unlock()
	call.ended = true
	call.done <- struct{}{}
}

// fail closes the connection and ends all of its calls with the error.
func (w *wire) fail(err error) {
	_ = w.conn.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken == nil {
		w.broken = status.Error(codes.Unavailable, err.Error())
	}
	for stream, call := range w.calls {
		delete(w.calls, stream)
		call.err = w.broken
		call.ended = true
		call.done <- struct{}{}
	}
}

// isUsable returns whether a further call may begin.
func (w *wire) isUsable() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.broken == nil && w.last < streamsMax
}
