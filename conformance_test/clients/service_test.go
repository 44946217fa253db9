package clients

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// waiting is how many handlers wait for the end of their call or request.
var waiting atomic.Int64

// wait waits for the end of a call or request.
func wait(ctx context.Context) error {
	waiting.Add(1)
	defer waiting.Add(-1)
	<-ctx.Done()
	return ctx.Err()
}

// service is percore.Bytes, whose messages are all google.protobuf.BytesValue, which clients without
// generated code can write: 0x0a, the length, the bytes.
var service = grpc.ServiceDesc{
	ServiceName: "percore.Bytes",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{
		unary("Echo", echo),
		unary("Wait", func(ctx context.Context, in *message) (*message, error) { return in, wait(ctx) }),
	},
	Streams: []grpc.StreamDesc{
		{StreamName: "Sink", Handler: sink, ClientStreams: true},
		{StreamName: "Source", Handler: source, ServerStreams: true},
		{StreamName: "Chat", Handler: chat, ClientStreams: true, ServerStreams: true},
	},
}

type message = wrapperspb.BytesValue

func unary(name string, do func(context.Context, *message) (*message, error)) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		in := new(message)
		if err := decode(in); err != nil {
			return nil, err
		}
		return do(ctx, in)
	}}
}

// echo answers with the message. It returns the metadata that begins with "x-" as header and as trailer,
// and it fails when it is told to.
func echo(ctx context.Context, in *message) (*message, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	back := make(metadata.MD)
	for name, values := range md {
		if strings.HasPrefix(name, "x-") {
			back[name] = values
		}
	}
	if err := grpc.SetHeader(ctx, back); err != nil {
		return nil, err
	}
	if err := grpc.SetTrailer(ctx, back); err != nil {
		return nil, err
	}
	if string(in.Value) == "fail" {
		return nil, status.Error(codes.FailedPrecondition, "50 % of größe ✓")
	}
	return in, nil
}

// sink counts the messages.
func sink(_ any, stream grpc.ServerStream) error {
	messages, bytes := 0, 0
	for in := new(message); ; messages++ {
		switch err := stream.RecvMsg(in); err {
		case nil:
			bytes += len(in.Value)
		case io.EOF:
			return stream.SendMsg(wrapperspb.Bytes(fmt.Appendf(nil, "%d messages, %d bytes", messages, bytes)))
		default:
			return err
		}
	}
}

// source sends as many messages, and as long ones, as it is told: "MESSAGES BYTES".
func source(_ any, stream grpc.ServerStream) error {
	in := new(message)
	if err := stream.RecvMsg(in); err != nil {
		return err
	}
	messages, bytes := numbers(string(in.Value))
	out := wrapperspb.Bytes(make([]byte, bytes))
	for range messages {
		if err := stream.SendMsg(out); err != nil {
			return err
		}
	}
	return nil
}

// numbers returns two numbers, or zeros.
func numbers(s string) (a, b int) {
	_, _ = fmt.Sscan(s, &a, &b)
	return a, b
}

// chat answers each message with the same.
func chat(_ any, stream grpc.ServerStream) error {
	for in := new(message); ; {
		switch err := stream.RecvMsg(in); err {
		case nil:
		case io.EOF:
			return nil
		default:
			return err
		}
		if err := stream.SendMsg(in); err != nil {
			return err
		}
	}
}

// site is what clients of HTTP talk to.
func site() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "hello") })
	mux.HandleFunc("/wait", func(w http.ResponseWriter, r *http.Request) { _ = wait(r.Context()) })
	mux.HandleFunc("/count", func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, strconv.FormatInt(n, 10))
	})
	// As many parts, and as long ones, as the query has it: ?MESSAGES+BYTES.
	mux.HandleFunc("/source", func(w http.ResponseWriter, r *http.Request) {
		parts, bytes := numbers(strings.ReplaceAll(r.URL.RawQuery, "+", " "))
		part := make([]byte, bytes)
		for range parts {
			if !writePart(w, part) {
				return
			}
		}
	})
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		part := make([]byte, 32<<10)
		for {
			n, err := r.Body.Read(part)
			if n > 0 && !writePart(w, part[:n]) || err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/refuse", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "no", http.StatusRequestEntityTooLarge)
	})
	return mux
}

// writePart writes and flushes.
func writePart(w http.ResponseWriter, part []byte) bool {
	if _, err := w.Write(part); err != nil {
		return false
	}
	return http.NewResponseController(w).Flush() == nil
}
