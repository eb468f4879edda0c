package main

import (
	"encoding/base64"
	"encoding/binary"
	"net/url"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// wireCall is one call in flight; only the reader changes it before done has a value.
type wireCall struct {
	done   chan struct{}
	answer []byte
	leader string
	code   codes.Code
	text   string
	detail string
	ended  bool
	err    error
}

// result unmarshals the answer, or returns the status as an error.
func (c *wireCall) result(answer proto.Message) error {
	if c.code == codes.OK {
		if len(c.answer) < prefixBytes || c.answer[0] != 0 ||
			int(binary.BigEndian.Uint32(c.answer[1:])) != len(c.answer)-prefixBytes {
			return status.Error(codes.Internal, "the answer is not one uncompressed message")
		}
		return proto.Unmarshal(c.answer[prefixBytes:], answer)
	}
	if packed, err := base64.RawStdEncoding.DecodeString(c.detail); err == nil && len(packed) > 0 {
		var details spb.Status
		if err := proto.Unmarshal(packed, &details); err == nil {
			return status.ErrorProto(&details)
		}
	}
	text, err := url.PathUnescape(c.text)
	if err != nil {
		text = c.text
	}
	return status.Error(c.code, text)
}
