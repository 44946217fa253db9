package main

import (
	"context"
	"errors"
	"log"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	feedMax   = 8192            // messages that wait for the hub; NATS drops what comes while it is full
	askEvery  = time.Second     // for the stream's last number, in case the last message was not sent
	askLimit  = 2 * time.Second // for an answer
	askPause  = 100 * time.Millisecond
	seqHeader = "Nats-Sequence"
)

// A feed gives the hub the stream's messages, all of them and in order. NATS sends each once
// the stream has it, and may lose it: when the server dies that was about to send it, or when the
// process doesn't keep up. The numbers have no holes, so the feed knows, and asks the stream for what is
// missing before it goes on.
//
// Each process gets the messages of all rooms. In a cluster of three its server has them anyway;
// with many more machines than that, a feed per room would save something.
type feed struct {
	hub          *hub
	live         chan *nats.Msg
	subscription *nats.Subscription
	next         uint64 // the number of the next message
}

// newFeed returns a feed of the messages from now on.
func newFeed(h *hub) (*feed, error) {
	f := &feed{hub: h, live: make(chan *nats.Msg, feedMax)}
	var err error
	if f.subscription, err = h.backbone.nc.ChanSubscribe("live.*", f.live); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(h.ctx, startLimit)
	defer cancel()
	for { // behind the subscription: no message comes between the two
		last, err := h.backbone.last(ctx)
		if err == nil {
			h.position, f.next = last, last+1
			return f, nil
		}
		if ctx.Err() != nil {
			f.subscription.Unsubscribe()
			return nil, err
		}
	}
}

// run passes on messages until the hub is closed.
func (f *feed) run() {
	defer f.subscription.Unsubscribe()
	ticker := time.NewTicker(askEvery)
	defer ticker.Stop()
	seen := f.next
	for {
		select {
		case <-f.hub.ctx.Done():
			return
		case msg := <-f.live:
			f.take(msg)
		case <-ticker.C:
			if f.next == seen {
				f.ask()
			}
			seen = f.next
		}
	}
}

// take passes on a message that NATS has sent, after those before it.
func (f *feed) take(msg *nats.Msg) {
	id, err := strconv.ParseUint(msg.Header.Get(seqHeader), 10, 64)
	if err != nil || id < f.next {
		return
	}
	f.catchUp(id - 1)
	if id == f.next {
		f.pass(id, strings.TrimPrefix(msg.Subject, "live."), msg.Data)
	}
}

// ask passes on what the stream has and NATS has not sent. Nothing is known while it doesn't answer.
func (f *feed) ask() {
	ctx, cancel := context.WithTimeout(f.hub.ctx, askLimit)
	defer cancel()
	if last, err := f.hub.backbone.last(ctx); err == nil {
		f.catchUp(last)
	}
}

// catchUp gets messages from the stream up to last. While it has no leader no member
// can say anything either, so there is nothing to do but to try again.
func (f *feed) catchUp(last uint64) {
	for f.next <= last && f.hub.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(f.hub.ctx, askLimit)
		raw, err := f.hub.backbone.stream.GetMsg(ctx, f.next)
		cancel()
		switch {
		case err == nil:
			f.pass(f.next, strings.TrimPrefix(raw.Subject, "room."), raw.Data)
		case errors.Is(err, jetstream.ErrMsgNotFound):
			log.Printf("message %d has expired before this process got it", f.next)
			f.next++
		default:
			time.Sleep(askPause)
		}
	}
}

// pass gives the hub a message.
func (f *feed) pass(id uint64, room string, data []byte) {
	f.next = id + 1
	m, err := newMessage(id, data)
	if err != nil {
		log.Printf("message %d is none of the hub's: %v", id, err)
		return
	}
	f.hub.receive(room, m)
}

// last returns the number of the stream's last message. The stream's leader answers.
func (b *backbone) last(ctx context.Context) (uint64, error) {
	info, err := b.stream.Info(ctx)
	if err != nil {
		return 0, err
	}
	return info.State.LastSeq, nil
}

// kept reports whether the stream still has everything after position.
func (b *backbone) kept(ctx context.Context, position uint64) (bool, error) {
	info, err := b.stream.Info(ctx)
	if err != nil {
		return false, err
	}
	return info.State.FirstSeq <= position+1, nil
}

// first returns a room's first message after position, and ok false if there is none up to last.
func (b *backbone) first(ctx context.Context, room string, position, last uint64) (_ message, ok bool, err error) {
	raw, err := b.stream.GetMsg(ctx, position+1, jetstream.WithGetMsgSubject("room."+room))
	if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && raw.Sequence > last {
		return message{}, false, nil
	}
	if err != nil {
		return message{}, false, err
	}
	m, err := newMessage(raw.Sequence, raw.Data)
	return m, err == nil, err
}
