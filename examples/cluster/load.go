package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	"log"
	mathrand "math/rand/v2"
	"sync"
	"time"
)

const (
	rate   = 100             // messages per second of all members together
	settle = 2 * time.Minute // for the last messages to come
)

// A load is members that talk and check each other.
type load struct {
	clients []*listener
	said    []int // messages, by room
	seed    maphash.Seed
}

// A listener is a member and what it has heard. That fits into a few words: the members of a room
// have heard the same if the hashes over all of it are equal.
type listener struct {
	client
	room  int
	count int    // guarded by client.mu
	chain uint64 // the same: the hash of all ids, senders and texts in their order
}

func newLoad(servers []string, members, rooms int) *load {
	l := &load{said: make([]int, rooms), seed: maphash.MakeSeed()}
	prefix := rand.Text()[:8]
	for i := range members {
		c := &listener{room: i % rooms}
		c.client = client{servers: servers, room: fmt.Sprint(prefix, c.room), name: fmt.Sprint("member-", i)}
		c.client.hear = func(e event, s said) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.count++
			c.chain = maphash.String(l.seed, fmt.Sprint(c.chain, e.ID, s.From, s.Text))
		}
		l.clients = append(l.clients, c)
	}
	return l
}

// run makes the members join, talk for a while, and hear everything. It returns what is wrong.
func (l *load) run(ctx context.Context, duration time.Duration) error {
	ctx, stop := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop(nil)
	for _, c := range l.clients {
		running.Go(func() {
			if err := c.run(ctx); err != nil {
				stop(err)
			}
		})
	}
	if err := l.await(ctx, "joined", func(c *listener) bool { return c.joins > 0 }); err != nil {
		return err
	}
	log.Printf("%d members talk for %v", len(l.clients), duration)
	ticker := time.NewTicker(time.Second / rate)
	defer ticker.Stop()
	for range int(duration * rate / time.Second) {
		select {
		case <-ticker.C:
			c := l.clients[mathrand.IntN(len(l.clients))]
			l.said[c.room]++
			c.send("hello at " + time.Now().Format(time.StampMilli))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := l.await(ctx, "heard everything", func(c *listener) bool { return c.count == l.said[c.room] }); err != nil {
		return err
	}
	joins := 0
	for i, c := range l.clients {
		joins += c.joins
		if c.chain != l.clients[c.room].chain {
			return fmt.Errorf("members %d and %d have heard different things", i, c.room)
		}
	}
	log.Printf("said %d, joined again %d", l.said, joins-len(l.clients))
	return nil
}

// await waits until all members have done something.
func (l *load) await(ctx context.Context, what string, has func(*listener) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, settle, errors.New("not all members have "+what))
	defer cancel()
	for _, c := range l.clients {
		for {
			c.mu.Lock()
			done := has(c)
			c.mu.Unlock()
			if done {
				break
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}
