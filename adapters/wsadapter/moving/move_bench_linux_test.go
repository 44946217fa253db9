//go:build !percore_net

package moving

import (
	"fmt"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// BenchmarkMove moves 1,000 idle conversations to another server, in one process and without the
// messages of a handover. An operation is a move.
func BenchmarkMove(b *testing.B) {
	const conns = 1000
	p := newPlace(b).serve()
	for i := range conns {
		p.join(fmt.Sprint("member", i), "User-Agent: "+fmt.Sprintf("%0200d", 0)+"\r\n")
	}
	restored := ReadStats().Restored
	var moving time.Duration
	b.ResetTimer()
	for i := range b.N {
		to := newPlace(b)
		begin := time.Now()
		p.handOver(to)
		testnet.Eventually(b, "the conversations", func() bool { return ReadStats().Restored == restored+uint64((i+1)*conns) })
		moving += time.Since(begin)
		p = to
	}
	b.ReportMetric(float64(moving.Milliseconds())/float64(b.N), "ms/move")
}
