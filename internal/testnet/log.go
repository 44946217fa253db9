package testnet

import (
	"bytes"
	"strings"
	"sync"
)

// A Log collects what a program under test writes. It is safe for concurrent use. The zero value is
// an empty log.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns all that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Count returns how many times s was written.
func (l *Log) Count(s string) int { return strings.Count(l.String(), s) }

// Has reports whether s was written.
func (l *Log) Has(s string) bool { return l.Count(s) > 0 }
