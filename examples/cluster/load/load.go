package main

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore/examples/cluster/client"
)

// dialing is how many members join at the same time.
const dialing = 64

// A load is members that talk and check each other.
type load struct {
	servers       []string
	members       int
	rooms         int
	rate          int // messages per second
	everyone      []*listener
	stop          context.CancelFunc
	running       sync.WaitGroup
	seed          maphash.Seed
	said, acked   atomic.Int64
	heard, rejoin atomic.Int64
	gaps          atomic.Int64
	disorder      atomic.Int64
	perRoom       []roomCount
}

// roomCount has what was acknowledged in a room.
type roomCount struct {
	mu    sync.Mutex
	acked int    // messages
	last  uint64 // the greatest id
}

// A listener is a member and what it has heard. That fits into a few words: the members of a room
// have heard the same if the hashes over all of it are equal.
type listener struct {
	member *client.Member
	room   int
	mu     sync.Mutex
	count  int    // guarded by mu
	last   uint64 // guarded by mu
	hash   uint64 // guarded by mu: of all ids, senders and texts in their order
}

// start returns when all members have joined.
func (l *load) start(ctx context.Context) error {
	ctx, l.stop = context.WithCancel(ctx)
	l.seed = maphash.MakeSeed()
	l.perRoom = make([]roomCount, l.rooms)
	slots := make(chan struct{}, dialing)
	for i := range l.members {
		slots <- struct{}{}
		heard := &listener{room: i % l.rooms}
		var once sync.Once
		config := client.Config{
			Servers: l.servers,
			Room:    "load-" + strconv.Itoa(heard.room),
			Name:    "member-" + strconv.Itoa(i),
			Joined: func() {
				l.rejoin.Add(1)
				once.Do(func() { <-slots })
			},
			Hear:  func(m client.Message) { l.hear(heard, m) },
			Acked: func(_, id uint64) { l.ack(heard.room, id) },
			Gap:   func() { l.gaps.Add(1) },
			Left: func(err error) {
				if errors.Is(err, client.ErrOrder) {
					l.disorder.Add(1)
				}
			},
		}
		heard.member = client.New(config)
		l.everyone = append(l.everyone, heard)
		l.running.Go(func() { heard.member.Run(ctx) })
	}
	for range dialing { // those that are still joining
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (l *load) hear(heard *listener, m client.Message) {
	l.heard.Add(1)
	heard.mu.Lock()
	defer heard.mu.Unlock()
	heard.count++
	heard.last = m.ID
	heard.hash = maphash.String(l.seed, fmt.Sprint(heard.hash, m.ID, m.From, m.Text))
}

func (l *load) ack(room int, id uint64) {
	l.acked.Add(1)
	r := &l.perRoom[room]
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acked++
	r.last = max(r.last, id)
}

// talk has members say something until ctx ends.
func (l *load) talk(ctx context.Context) {
	ticker := time.NewTicker(time.Second / time.Duration(l.rate))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			l.said.Add(1)
			l.everyone[rand.IntN(l.members)].member.Send("hello at " + time.Now().Format(time.StampMilli))
		case <-ctx.Done():
			return
		}
	}
}

// check waits until everything is acknowledged and heard, or ctx ends, and returns what is wrong.
func (l *load) check(ctx context.Context) (problems []string) {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for ctx.Err() == nil && !l.settled() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
	l.stop()
	l.running.Wait()
	if said, acked := l.said.Load(), l.acked.Load(); said != acked {
		problems = append(problems, fmt.Sprintf("%d messages were said, %d acknowledged", said, acked))
	}
	if n := l.gaps.Load(); n > 0 {
		problems = append(problems, fmt.Sprintf("%d members were told that messages are lost", n))
	}
	if n := l.disorder.Load(); n > 0 {
		problems = append(problems, fmt.Sprintf("%d times a message came twice or out of order", n))
	}
	for _, heard := range l.everyone {
		first := l.everyone[heard.room]
		if want := l.perRoom[heard.room].acked; heard.count != want {
			problems = append(problems, fmt.Sprintf("room %d: a member has heard %d messages of %d", heard.room, heard.count, want))
		} else if heard.hash != first.hash {
			problems = append(problems, fmt.Sprintf("room %d: two members have heard different things", heard.room))
		}
	}
	return problems
}

// settled reports whether all members have heard the last acknowledged message of their room.
func (l *load) settled() bool {
	if l.said.Load() != l.acked.Load() {
		return false
	}
	for _, heard := range l.everyone {
		r := &l.perRoom[heard.room]
		r.mu.Lock()
		want := r.last
		r.mu.Unlock()
		heard.mu.Lock()
		last := heard.last
		heard.mu.Unlock()
		if last < want {
			return false
		}
	}
	return true
}

func (l *load) summary() string {
	return fmt.Sprintf("said %d, acknowledged %d, heard %d, joined again %d",
		l.said.Load(), l.acked.Load(), l.heard.Load(), max(0, l.rejoin.Load()-int64(l.members)))
}
