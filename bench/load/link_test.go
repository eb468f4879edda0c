package main

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const testTimeout = 10 * time.Second

// echo answers with the request, or refuses a request that begins with "refuse".
func echo(_ any, stream grpc.ServerStream) error {
	var request wrapperspb.StringValue
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	_ = stream.SetHeader(metadata.Pairs(leaderKey, "n2:7401"))
	if strings.HasPrefix(request.Value, "refuse") {
		refusal := status.New(codes.NotFound, "50 % of ä")
		refusal, err := refusal.WithDetails(&errdetails.ErrorInfo{Reason: "TUBE_NOT_FOUND"})
		if err != nil {
			return err
		}
		return refusal.Err()
	}
	return stream.SendMsg(&request)
}

func serve(t *testing.T, address string) (*grpc.Server, string) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(echo))
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return server, listener.Addr().String()
}

func linkTo(t *testing.T, address string, timeout time.Duration) *link {
	t.Helper()
	made, err := newLink(address, timeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = made.Close() })
	return made
}

func asked(l *link, text string, opts ...grpc.CallOption) (string, error) {
	var answer wrapperspb.StringValue
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	err := l.Invoke(ctx, "/a.B/Echo", wrapperspb.String(text), &answer, opts...)
	return answer.Value, err
}

func TestCallersOfOneLinkGetTheirOwnAnswers(t *testing.T) {
	_, address := serve(t, "127.0.0.1:0")
	shared := linkTo(t, address, testTimeout)
	var calling sync.WaitGroup
	for caller := range 8 {
		calling.Go(func() {
			for number := range 300 {
				sent := strings.Repeat(string(rune('a'+caller)), number+1)
				if answer, err := asked(shared, sent); err != nil || answer != sent {
					t.Errorf("caller %d got %q, %v for %q", caller, answer, err, sent)
					return
				}
			}
		})
	}
	calling.Wait()
}

func TestRequestsOfAnySizeAreSent(t *testing.T) {
	_, address := serve(t, "127.0.0.1:0")
	link := linkTo(t, address, testTimeout)
	for _, size := range []int{0, wireMessageBytes - 20, wireMessageBytes, 300_000} {
		sent := strings.Repeat("x", size)
		if answer, err := asked(link, sent); err != nil || answer != sent {
			t.Errorf("%d bytes: got %d bytes, %v", size, len(answer), err)
		}
	}
}

func TestTheLeaderInTheHeadersIsReported(t *testing.T) {
	_, address := serve(t, "127.0.0.1:0")
	var header metadata.MD
	if _, err := asked(linkTo(t, address, testTimeout), "x", grpc.Header(&header)); err != nil {
		t.Fatal(err)
	}
	if named := header.Get(leaderKey); len(named) != 1 || named[0] != "n2:7401" {
		t.Errorf("the leader is %v", named)
	}
}

func TestAnErrorKeepsItsCodeAndItsReason(t *testing.T) {
	_, address := serve(t, "127.0.0.1:0")
	_, err := asked(linkTo(t, address, testTimeout), "refuse")
	failure := status.Convert(err)
	if failure.Code() != codes.NotFound || failure.Message() != "50 % of ä" || reasonOf(err) != "TUBE_NOT_FOUND" {
		t.Errorf("the error is %v, its reason %s", err, reasonOf(err))
	}
}

func TestALinkConnectsAgainAfterItsServerStopped(t *testing.T) {
	server, address := serve(t, "127.0.0.1:0")
	link := linkTo(t, address, testTimeout)
	if _, err := asked(link, "x"); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	if _, err := asked(link, "x"); status.Code(err) != codes.Unavailable {
		t.Fatalf("the error is %v", err)
	}
	serve(t, address)
	if answer, err := asked(link, "x"); err != nil || answer != "x" {
		t.Errorf("got %q, %v", answer, err)
	}
}

func TestACallToASilentServerEndsAtItsTimeout(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, conn) }()
		}
	}()
	_, err = asked(linkTo(t, listener.Addr().String(), 10*time.Millisecond), "x")
	if status.Code(err) != codes.Unavailable {
		t.Errorf("the error is %v", err)
	}
}
