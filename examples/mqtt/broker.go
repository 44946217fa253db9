package main

import (
	"strings"
	"sync"

	"github.com/percore/percore/pool"
)

// broker knows who is there, and who has subscribed to what. Its methods are called on all loops.
type broker struct {
	mu      sync.RWMutex
	clients map[string]*client // by their id; guarded by mu
	topics  node               // guarded by mu
}

// node is a level of the tree of subscriptions: "a/+" is the subscribers of the child "+" of the child
// "a" of the root.
type node struct {
	children    map[string]*node
	subscribers map[*client]byte // and their QoS
}

func newBroker() *broker { return &broker{clients: make(map[string]*client)} }

// join adds a client. Another with the same id is sent away (3.1.4).
func (b *broker) join(c *client) {
	b.mu.Lock()
	old := b.clients[c.id]
	b.clients[c.id] = c
	b.mu.Unlock()
	if old != nil {
		old.conn.Abort()
	}
}

// leave removes a client and its subscriptions.
func (b *broker) leave(c *client) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.clients[c.id] == c {
		delete(b.clients, c.id)
	}
	for filter := range c.filters {
		b.topics.remove(c, strings.Split(filter, "/"))
	}
}

func (b *broker) subscribe(c *client, filter string, qos byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.topics.add(c, qos, strings.Split(filter, "/"))
}

func (b *broker) unsubscribe(c *client, filter string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.topics.remove(c, strings.Split(filter, "/"))
}

// publish sends a message to all that have subscribed to its topic. Those that get it with QoS 0 share
// the bytes.
func (b *broker) publish(m publish) {
	receivers := make(map[*client]byte)
	b.mu.RLock()
	levels := strings.Split(m.topic, "/")
	b.topics.collect(receivers, levels, !strings.HasPrefix(m.topic, "$"))
	b.mu.RUnlock()
	if len(receivers) == 0 {
		return
	}
	p := appendPublish(nil, 0, 0, m.topic, m.message)
	shared := pool.Get(len(p))
	defer shared.Release()
	copy(shared.Bytes(), p)
	for c, qos := range receivers {
		if min(qos, m.qos) == 0 {
			c.offer(shared)
		} else {
			c.deliver(m)
		}
	}
}

func (n *node) add(c *client, qos byte, levels []string) {
	if len(levels) == 0 {
		if n.subscribers == nil {
			n.subscribers = make(map[*client]byte)
		}
		n.subscribers[c] = qos
		return
	}
	if n.children == nil {
		n.children = make(map[string]*node)
	}
	child := n.children[levels[0]]
	if child == nil {
		child = new(node)
		n.children[levels[0]] = child
	}
	child.add(c, qos, levels[1:])
}

// remove also removes the nodes that are empty then.
func (n *node) remove(c *client, levels []string) {
	if len(levels) == 0 {
		delete(n.subscribers, c)
		return
	}
	child := n.children[levels[0]]
	if child == nil {
		return
	}
	child.remove(c, levels[1:])
	if len(child.subscribers) == 0 && len(child.children) == 0 {
		delete(n.children, levels[0])
	}
}

// collect adds the subscribers of a topic, each with its highest QoS. At the first level wildcards may
// not count, for topics that begin with $ (4.7.2).
func (n *node) collect(receivers map[*client]byte, levels []string, wildcards bool) {
	if wildcards {
		if all := n.children["#"]; all != nil { // it also stands for no further level
			all.give(receivers)
		}
	}
	if len(levels) == 0 {
		n.give(receivers)
		return
	}
	if child := n.children[levels[0]]; child != nil {
		child.collect(receivers, levels[1:], true)
	}
	if any := n.children["+"]; any != nil && wildcards {
		any.collect(receivers, levels[1:], true)
	}
}

func (n *node) give(receivers map[*client]byte) {
	for c, qos := range n.subscribers {
		receivers[c] = max(qos, receivers[c])
	}
}
