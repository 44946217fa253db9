// Command foreignload measures servers with grpc-go's own benchmark client, in a process of its own:
// grpc.NewServer on package net, and the two servers of grpcadapter on percore.
//
//	go run ./foreignload
//	go run ./foreignload -rounds 5 -duration 3 -conns 64 -callers 1 -type streaming
//
// It prints the calls per second and the latencies that the client has measured, and the CPU time of
// the server for each call, warming up included: the median of the rounds, in which each server has its
// turn.
// The client ends the program at its first error.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/benchmark" // of which the client is
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/grpcadapter"
)

// doors are the servers. The first is the one that others are compared with.
var doors = []struct {
	name   string
	listen func(network, address string) (net.Listener, error)
	start  func(echo *server, lis net.Listener) error
}{
	{"net", net.Listen, func(echo *server, lis net.Listener) error {
		srv := grpc.NewServer()
		testgrpc.RegisterBenchmarkServiceServer(srv, echo)
		return srv.Serve(lis)
	}},
	{"percore+newserver", listen, func(echo *server, lis net.Listener) error {
		srv := grpcadapter.NewServer()
		testgrpc.RegisterBenchmarkServiceServer(srv, echo)
		return srv.Serve(lis)
	}},
	{"percore+fastpath", listen, func(echo *server, lis net.Listener) error {
		srv := grpc.NewServer()
		testgrpc.RegisterBenchmarkServiceServer(srv, echo)
		w := grpcadapter.Wrap(srv)
		if err := w.Refusal(); err != nil {
			return err
		}
		return w.Serve(lis)
	}},
}

func listen(network, address string) (net.Listener, error) { return percore.Listen(network, address) }

var (
	serves   = flag.Int("serve", -1, "for the command itself: which server to be")
	rounds   = flag.Int("rounds", 3, "rounds")
	duration = flag.Int("duration", 2, "seconds that are measured, after one to warm up")
	conns    = flag.Int("conns", 1, "connections")
	callers  = flag.Int("callers", 64, "calls, or streams, at once on each connection")
	bytes    = flag.Int("bytes", 128, "bytes of a message, in either direction")
	kind     = flag.String("type", "unary", "unary, or streaming: messages to and fro on one stream")
)

func main() {
	flag.Parse()
	if *serves >= 0 {
		if err := serve(*serves); err != nil {
			log.Fatal(err)
		}
		return
	}
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

// A server answers with as many bytes as it is asked for.
type server struct {
	testgrpc.UnimplementedBenchmarkServiceServer
	calls atomic.Int64
}

func (s *server) UnaryCall(_ context.Context, r *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	s.calls.Add(1)
	return &testgrpc.SimpleResponse{Payload: &testgrpc.Payload{Body: make([]byte, r.ResponseSize)}}, nil
}

func (s *server) StreamingCall(stream testgrpc.BenchmarkService_StreamingCallServer) error {
	for {
		r, err := stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return err
		}
		answer, _ := s.UnaryCall(stream.Context(), r)
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

// serve is a server until its input ends. It prints its port, and at the end how many calls it has
// served.
func serve(door int) error {
	echo := new(server)
	lis, err := doors[door].listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() { log.Fatal(doors[door].start(echo, lis)) }()
	fmt.Println(lis.Addr().(*net.TCPAddr).Port)
	_, _ = io.Copy(io.Discard, os.Stdin)
	fmt.Println(echo.calls.Load())
	return nil
}

// figures are those of a server in one round.
type figures struct {
	perSecond    float64
	median, late time.Duration // latencies
	cpu          time.Duration // of a call
}

func run() error {
	dir, err := os.MkdirTemp("", "foreignload")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	client := filepath.Join(dir, "client")
	build := exec.Command("go", "build", "-o", client, "google.golang.org/grpc/benchmark/client")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("go build: %w", err)
	}
	all := make([][]figures, len(doors))
	for range *rounds {
		for i := range doors {
			f, err := measure(client, i)
			if err != nil {
				return fmt.Errorf("%s: %w", doors[i].name, err)
			}
			all[i] = append(all[i], f)
		}
	}
	fmt.Printf("%s, %d bytes, %d connections, %d callers on each\n", *kind, *bytes, *conns, *callers)
	for i, door := range doors {
		cpu := middle(all[i], func(f figures) float64 { return float64(f.cpu) })
		fmt.Printf("%-18s %8.0f/s  p50 %-9v p99 %-9v server %v a call, %.2f of %s\n", door.name,
			middle(all[i], func(f figures) float64 { return f.perSecond }),
			time.Duration(middle(all[i], func(f figures) float64 { return float64(f.median) })).Round(time.Microsecond),
			time.Duration(middle(all[i], func(f figures) float64 { return float64(f.late) })).Round(time.Microsecond),
			time.Duration(cpu).Round(100*time.Nanosecond),
			cpu/middle(all[0], func(f figures) float64 { return float64(f.cpu) }), doors[0].name)
	}
	return nil
}

func middle(all []figures, of func(figures) float64) float64 {
	var values []float64
	for _, f := range all {
		values = append(values, of(f))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

var result = regexp.MustCompile(`qps: (\S+)\nLatency: \(50/90/99 %ile\): ([^/]+)/[^/]+/(\S+)\n`)

// measure starts a server and loads it.
func measure(client string, door int) (f figures, err error) {
	self, err := os.Executable()
	if err != nil {
		return f, err
	}
	cmd := exec.Command(self, "-serve", strconv.Itoa(door))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return f, err
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return f, err
	}
	if err := cmd.Start(); err != nil {
		return f, err
	}
	out := bufio.NewReader(pipe)
	var port, calls int
	if _, err = fmt.Fscanln(out, &port); err == nil {
		err = f.load(client, port)
	}
	in.Close()
	if err == nil {
		_, err = fmt.Fscanln(out, &calls)
	}
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return f, err
	}
	f.cpu = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()) / time.Duration(max(calls, 1))
	return f, nil
}

// load runs the client. It leaves profiles in the system's directory for temporary files.
func (f *figures) load(client string, port int) error {
	out, err := exec.Command(client, "-test_name", "foreignload", "-port", strconv.Itoa(port), "-w", "1",
		"-d", strconv.Itoa(*duration), "-c", strconv.Itoa(*conns), "-r", strconv.Itoa(*callers),
		"-req", strconv.Itoa(*bytes), "-resp", strconv.Itoa(*bytes), "-rpc_type", *kind).CombinedOutput()
	if err != nil {
		return fmt.Errorf("the client: %w\n%s", err, out)
	}
	found := result.FindSubmatch(out)
	if found == nil {
		return fmt.Errorf("the client has printed\n%s", out)
	}
	perSecond, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		return err
	}
	median, err := time.ParseDuration(string(found[2]))
	if err != nil {
		return err
	}
	late, err := time.ParseDuration(string(found[3]))
	f.perSecond, f.median, f.late = perSecond, median, late
	return err
}
