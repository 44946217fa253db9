package load

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// latencies collects how long the operations of many goroutines took, with three significant digits. A
// histogram of this range takes a quarter of a megabyte, which is too much memory and cache for each of
// hundreds of goroutines. The minimum of the range is also the unit of an HDR histogram: with a
// microsecond, it could hardly distinguish 8 and 9 µs.
type latencies struct {
	mu sync.Mutex
	h  *hdrhistogram.Histogram // guarded by mu; all shards must be flushed before it is read
}

// latencyMax stands for longer latencies, too.
const latencyMax = 2 * time.Minute

func newLatencies() *latencies {
	return &latencies{h: hdrhistogram.New(1, int64(latencyMax), 3)}
}

// quantile returns the latency that a fraction q of all didn't exceed.
func (l *latencies) quantile(q float64) time.Duration {
	return time.Duration(l.h.ValueAtQuantile(100 * q))
}

// encode returns the histogram in HdrHistogram's V2 compressed format, base64.
func (l *latencies) encode() (string, error) {
	b, err := l.h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	return string(b), err
}

// shard is one goroutine's end of latencies. It seldom takes the lock, since it passes several on at
// once.
type shard struct {
	to   *latencies
	n    int
	last [64]time.Duration
}

func (s *shard) record(d time.Duration) {
	s.last[s.n] = d
	if s.n++; s.n == len(s.last) {
		s.flush()
	}
}

func (s *shard) flush() {
	s.to.mu.Lock()
	defer s.to.mu.Unlock()
	for _, d := range s.last[:s.n] {
		_ = s.to.h.RecordValue(int64(min(max(d, 1), latencyMax))) // which fails out of range
	}
	s.n = 0
}
