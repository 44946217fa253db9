// Package latency records how long operations took, in HDR histograms: three
// significant digits over the whole range of values.
package latency

import (
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// The range and precision of a histogram. A latency below the range counts as its minimum, and one
// above as its maximum. The minimum is also the unit of an HDR histogram: with a microsecond, it
// could hardly distinguish 8 and 9 µs.
const (
	Min  = time.Nanosecond
	Max  = 2 * time.Minute
	figs = 3
)

// Histogram counts latencies. It is not safe for concurrent use.
type Histogram struct{ h *hdrhistogram.Histogram }

// New returns an empty histogram.
func New() *Histogram {
	return &Histogram{hdrhistogram.New(int64(Min), int64(Max), figs)}
}

// Decode decodes the output of Encode. It accepts any V2 HDR histogram in nanoseconds.
func Decode(encoded string) (*Histogram, error) {
	h, err := hdrhistogram.Decode([]byte(encoded))
	if err != nil {
		return nil, fmt.Errorf("decode latencies: %w", err)
	}
	return &Histogram{h}, nil
}

// Encode returns the histogram in HdrHistogram's V2 compressed format, base64. The HdrHistogram
// tools of other languages can read it.
func (h *Histogram) Encode() (string, error) {
	b, err := h.h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return "", fmt.Errorf("encode latencies: %w", err)
	}
	return string(b), nil
}

// Record counts one latency.
func (h *Histogram) Record(d time.Duration) {
	// RecordValue fails only for values out of range.
	_ = h.h.RecordValue(int64(min(max(d, Min), Max)))
}

// Merge adds the counts of other.
func (h *Histogram) Merge(other *Histogram) { h.h.Merge(other.h) }

// Count returns how many latencies were recorded.
func (h *Histogram) Count() int64 { return h.h.TotalCount() }

// Quantile returns the latency that a fraction q (0 to 1) of all latencies didn't exceed.
func (h *Histogram) Quantile(q float64) time.Duration {
	return time.Duration(h.h.ValueAtQuantile(q * 100))
}

// Max returns the longest latency recorded.
func (h *Histogram) Max() time.Duration { return time.Duration(h.h.Max()) }

// Recorder collects the latencies of many goroutines in one histogram. A histogram of this range
// takes a quarter of a megabyte. That is too much memory and cache for each of hundreds of
// goroutines.
type Recorder struct {
	mu sync.Mutex
	h  *Histogram // guarded by mu
}

// NewRecorder returns an empty recorder.
func NewRecorder() *Recorder { return &Recorder{h: New()} }

// Histogram returns the recorded values. All shards of the recorder must be flushed before, and
// must not be used afterwards.
func (r *Recorder) Histogram() *Histogram {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.h
}

// Shard returns a new shard for one goroutine.
func (r *Recorder) Shard() *Shard { return &Shard{rec: r} }

// Shard is one goroutine's end of a Recorder. It passes several latencies on at once, so that it
// seldom takes the lock. It is not safe for concurrent use.
type Shard struct {
	rec  *Recorder
	n    int
	last [64]time.Duration
}

// Record notes one latency.
func (s *Shard) Record(d time.Duration) {
	s.last[s.n] = d
	if s.n++; s.n == len(s.last) {
		s.Flush()
	}
}

// Flush passes the recorded values on.
func (s *Shard) Flush() {
	s.rec.mu.Lock()
	defer s.rec.mu.Unlock()
	for _, d := range s.last[:s.n] {
		s.rec.h.Record(d)
	}
	s.n = 0
}
