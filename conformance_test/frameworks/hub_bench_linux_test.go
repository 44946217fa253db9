package frameworks

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTimeOf returns the CPU time that a process has used.
func cpuTimeOf(b *testing.B, pid int) time.Duration {
	const cpuClockSched = 2 // of all threads: clock_getcpuclockid(3)
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|cpuClockSched), &ts); err != nil {
		b.Fatalf("the CPU time of process %d: %v", pid, err)
	}
	return time.Duration(ts.Nano())
}

// BenchmarkHub measures how much CPU time a hub, in its own process, takes to send a message of 64
// bytes back. 64 clients send the next message, or the next few in one packet, when they have the
// answer. The ways to run a hub take turns of a few hundred milliseconds, so that all run under the
// same conditions. Only a run of at least 20000 messages is meaningful:
//
//	go test -run '^$' -bench Hub -benchtime 400000x -count 5 ./conformance_test/frameworks
func BenchmarkHub(b *testing.B) {
	for _, setup := range []string{"gobwas", "gorilla", "coder", "gorilla,tls"} {
		for _, burst := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s/burst=%d", setup, burst), func(b *testing.B) { compareHubs(b, setup, burst) })
		}
	}
}

// A hubArm is a hub with its clients.
type hubArm struct {
	name    string // of the way it is run
	pid     int
	clients []*hubClient
	cpu     time.Duration // that it has used for its messages
	took    time.Duration
}

func compareHubs(b *testing.B, setup string, burst int) {
	const clients, turns = 64, 10
	var arms []*hubArm
	for _, way := range []string{"adapter", "goroutines", "net"} {
		child, _, dial := startHub(b, setup+","+way)
		arm := &hubArm{name: way, pid: child.PID()}
		for range clients {
			c := dial()
			defer c.Close()
			arm.clients = append(arm.clients, c)
		}
		arms = append(arms, arm)
	}
	rounds := max(1, b.N/(clients*turns*burst)) // of each client's, in a turn
	for range turns {
		for _, arm := range arms {
			arm.exchange(b, rounds, burst)
		}
	}
	messages := float64(turns * clients * rounds * burst)
	for _, arm := range arms {
		b.ReportMetric(float64(arm.cpu)/messages, arm.name+"-cpu-ns/msg")
		b.ReportMetric(float64(arm.took)/messages, arm.name+"-ns/msg")
	}
	b.ReportMetric(0, "ns/op") // meaningless
}

// exchange makes each client send messages and read the answers, rounds times.
func (a *hubArm) exchange(b *testing.B, rounds, burst int) {
	message := strings.Repeat("m", 64)
	var frames []byte
	for range burst {
		frames = appendClientFrame(frames, 0x81, []byte(message), 7)
	}
	answered := make(chan error, len(a.clients))
	start, cpu := time.Now(), cpuTimeOf(b, a.pid)
	for _, c := range a.clients {
		go func() {
			answer := make([]byte, burst*(2+len(message)))
			var err error
			for i := 0; i < rounds && err == nil; i++ {
				if _, err = c.Write(frames); err == nil {
					_, err = io.ReadFull(c.br, answer)
				}
			}
			answered <- err
		}()
	}
	for range a.clients {
		if err := <-answered; err != nil {
			b.Fatalf("%s: %v", a.name, err)
		}
	}
	a.cpu += cpuTimeOf(b, a.pid) - cpu
	a.took += time.Since(start)
}

// BenchmarkHubSparse measures the CPU time per message while 2000 clients each send one message per
// second, at random times, for two seconds. It also reports the hub's goroutines at the end.
//
//	go test -run '^$' -bench HubSparse -benchtime 1x -count 5 ./conformance_test/frameworks
func BenchmarkHubSparse(b *testing.B) {
	for _, setup := range []string{"gobwas", "gorilla"} {
		b.Run(setup, func(b *testing.B) {
			for _, way := range []string{"adapter", "goroutines", "net"} {
				sparseHub(b, setup, way)
			}
			b.ReportMetric(0, "ns/op") // meaningless
		})
	}
}

func sparseHub(b *testing.B, setup, way string) {
	const clients, lasting = 2000, 2 * time.Second
	child, out, dial := startHub(b, setup+","+way)
	var all []*hubClient
	for range clients {
		c := dial()
		defer c.Close()
		all = append(all, c)
	}
	type result struct {
		messages int
		err      error
	}
	results := make(chan result, clients)
	cpu, stop := cpuTimeOf(b, child.PID()), time.Now().Add(lasting)
	for _, c := range all {
		go func() {
			var r result
			message := appendClientFrame(nil, 0x81, []byte("some message"), 7)
			answer := make([]byte, len(message)-4) // without the mask
			for r.err == nil {
				time.Sleep(time.Duration(rand.ExpFloat64() * float64(time.Second)))
				if time.Now().After(stop) {
					break
				}
				if _, r.err = c.Write(message); r.err == nil {
					_, r.err = io.ReadFull(c.br, answer)
				}
				r.messages++
			}
			results <- r
		}()
	}
	time.Sleep(time.Until(stop))
	cpu = cpuTimeOf(b, child.PID()) - cpu
	var s hubState
	fmt.Fprintln(child.Stdin)
	if _, err := fmt.Fscanln(out, &s.bytes, &s.goroutines, &s.members, &s.waiting); err != nil {
		b.Fatalf("the hub's state: %v", err)
	}
	messages := 0
	for range all {
		r := <-results
		if r.err != nil {
			b.Fatalf("%s: %v", way, r.err)
		}
		messages += r.messages
	}
	b.ReportMetric(float64(cpu)/float64(messages), way+"-cpu-ns/msg")
	b.ReportMetric(float64(s.goroutines), way+"-goroutines")
}
