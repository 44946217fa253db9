// Command cores predicts with how many processors the words and locks that they share begin to hold up
// requests. It simulates processors that serve one request after the other: work of their own, and in
// between sections that only one processor at a time can be in. Nothing else of a machine is in it: not
// memory, nor the kernel's locks, nor the load.
//
//	go run ./cmd/percore/cores
//
// The costs of each path were counted and measured with two processors; see
// docs/decisions/words-that-processors-share.md. The time that a cache line takes from one processor to
// another can't be measured there, and is assumed: 30 to 100 ns are usual, less in one core complex.
package main

import (
	"container/heap"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"
)

func main() {
	line := flag.Duration("line", 60*time.Nanosecond, "how long a cache line takes from one processor to another")
	flag.Parse()
	write(os.Stdout, float64(line.Nanoseconds()))
}

// A section is entered by one processor at a time: a lock that is held, or a word that is added to.
type section struct {
	name  string
	each  int     // so many processors share one; 0: all
	hold  float64 // nanoseconds within, if the line is there already
	times int     // that each request enters it
}

// A path is what a request goes through.
type path struct {
	name     string
	own      float64 // nanoseconds of CPU time, system calls included
	sections []section
}

// Measured with two processors, beside other programs, which make CPU times longer: then requests meet
// less often. Sections were counted by the script count, the words of a connection in the code. How long
// the pool's and the adds take is that of a benchmark on one processor; the host's is an estimate.
const (
	addTime   = 5  // an atomic add
	poolHold  = 12 // to queue a connection, or to take one
	hostHold  = 25 // to take a connection of a client's host, or to give it back
	perSet    = 4  // processors of a pool of workers, and of a cell of counters
	connWords = 14 // of listener, group, Server and process, that a connection adds to from accept to close
)

var (
	pool = section{"lock of the pool", perSet, poolHold, 2}

	// A connection's state changes twice in a request, with an add for what it leaves and one for what it
	// comes into, which are on one line. The count of requests is on the next.
	counters       = []section{{"states", perSet, 2 * addTime, 2}, {"requests", perSet, addTime, 1}}
	serverCounters = []section{{"states", 0, 2 * addTime, 2}, {"requests", 0, addTime, 1}}
)

// ofConn returns sections for the words of a connection, each on a line of its own.
func ofConn() (all []section) {
	for i := range connWords {
		all = append(all, section{fmt.Sprint("word ", i), 0, addTime, 1})
	}
	return all
}

// paths have the CPU times of bench with 64 connections.
var paths = []path{
	{"fast path", 11_000, append(counters, pool)},
	{"fast path, if its counters had no cells", 11_000, append(serverCounters, pool)},
	{"fast path, a request a connection", 38_400, append(append(ofConn(), counters...), pool)},
	{"HTTP/2, a stream a connection", 12_800, []section{pool, {"counters", perSet, 2 * addTime, 2}}},
	{"gRPC, unary", 15_900, []section{{"lock of the pool", perSet, poolHold, 3}, {"counters", perSet, 2 * addTime, 2}, {"counters of rpc", perSet, addTime, 4}}},
	{"client, HTTP/1, one host", 16_900, []section{{"lock of the host", 0, hostHold, 2}, {"counters of the host", 0, 2 * addTime, 1}}},
}

var processors = []int{1, 2, 4, 8, 16, 32, 64, 128}

// write prints for each path which share of n times one processor's rate n processors reach.
func write(w io.Writer, line float64) {
	fmt.Fprintf(w, "a line takes %v ns; the share of n times one processor's rate that n processors reach\n\n%-40s", line, "")
	for _, n := range processors {
		fmt.Fprintf(w, "%6d", n)
	}
	fmt.Fprintln(w)
	for _, p := range paths {
		fmt.Fprintf(w, "%-40s", p.name)
		one := p.rate(1, line)
		for _, n := range processors {
			fmt.Fprintf(w, "%6.2f", p.rate(n, line)/one/float64(n))
		}
		fmt.Fprintln(w)
	}
}

// requests is how many requests each processor serves in a simulation.
const requests = 500

// rate returns how many requests a nanosecond n processors serve.
func (p path) rate(n int, line float64) float64 {
	var visits []section // one after the other
	for _, s := range p.sections {
		for range s.times {
			visits = append(visits, s)
		}
	}
	type key struct {
		name string
		of   int
	}
	places := make(map[key]*place)
	all := make(procs, n)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range all {
		at := random.Float64() * p.own
		all[i] = &proc{id: i, began: at, at: at}
	}
	heap.Init(&all)
	sum := 0.0
	for len(all) > 0 {
		c := all[0]
		if c.visits == requests*len(visits) {
			sum += requests / (c.at - c.began)
			heap.Pop(&all)
			continue
		}
		s := visits[c.visits%len(visits)]
		k := key{name: s.name}
		if s.each > 0 {
			k.of = c.id / s.each
		}
		at := places[k]
		if at == nil {
			at = &place{by: c.id}
			places[k] = at
		}
		begin := max(c.at, at.free)
		if at.by != c.id {
			begin += line
		}
		at.free, at.by = begin+s.hold, c.id
		c.visits++
		// Work between two sections takes from half to one and a half times as long as it does on average.
		c.at = at.free + p.own/float64(len(visits))*(0.5+random.Float64())
		heap.Fix(&all, 0)
	}
	return sum
}

// place is the state of a section.
type place struct {
	free float64 // when the last processor leaves it
	by   int     // which that is
}

// proc is a processor, which comes to its next section at a time.
type proc struct {
	id        int
	began, at float64
	visits    int
}

// procs are a heap, so that the one whose time is the earliest goes on.
type procs []*proc

func (p procs) Len() int           { return len(p) }
func (p procs) Less(i, j int) bool { return p[i].at < p[j].at }
func (p procs) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }
func (p *procs) Push(x any)        { *p = append(*p, x.(*proc)) }
func (p *procs) Pop() any {
	c := (*p)[len(*p)-1]
	*p = (*p)[:len(*p)-1]
	return c
}
