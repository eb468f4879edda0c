// Command interop runs one test case of gRPC's interoperability tests against a server.
//
// The program `interop/client` of gRPC runs the same cases, but it needs hundreds of packages for load balancers
// and clouds. A failed case ends the program with exit status 1.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/interop"
	testing "google.golang.org/grpc/interop/grpc_testing"
)

const timeout = time.Minute

type testCase func(context.Context, testing.TestServiceClient, ...grpc.CallOption)

var cases = map[string]testCase{
	"empty_unary":                 interop.DoEmptyUnaryCall,
	"large_unary":                 interop.DoLargeUnaryCall,
	"client_streaming":            interop.DoClientStreaming,
	"server_streaming":            interop.DoServerStreaming,
	"ping_pong":                   interop.DoPingPong,
	"empty_stream":                interop.DoEmptyStream,
	"timeout_on_sleeping_server":  interop.DoTimeoutOnSleepingServer,
	"cancel_after_begin":          interop.DoCancelAfterBegin,
	"cancel_after_first_response": interop.DoCancelAfterFirstResponse,
	"custom_metadata":             interop.DoCustomMetadata,
	"status_code_and_message":     interop.DoStatusCodeAndMessage,
	"special_status_message":      interop.DoSpecialStatusMessage,
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: interop ADDRESS CASE")
		os.Exit(2)
	}
	address, name := os.Args[1], os.Args[2]
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		os.Exit(1)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	service := testing.NewTestServiceClient(conn)
	switch name {
	case "unimplemented_method":
		interop.DoUnimplementedMethod(ctx, conn)
	case "unimplemented_service":
		interop.DoUnimplementedService(ctx, testing.NewUnimplementedServiceClient(conn))
	case "gzip_unary", "gzip_client_streaming":
		run := map[string]testCase{
			"gzip_unary": interop.DoLargeUnaryCall, "gzip_client_streaming": interop.DoClientStreaming,
		}[name]
		run(ctx, service, grpc.UseCompressor(gzip.Name))
	default:
		run, isKnown := cases[name]
		if !isKnown {
			fmt.Fprintln(os.Stderr, "interop: no such case:", name)
			os.Exit(2)
		}
		run(ctx, service)
	}
	fmt.Println("passed", name)
}
