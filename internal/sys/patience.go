package sys

import "time"

// A peer's kernel acknowledges what its program has not read, 100 KB and more at once, and then nothing
// until the program has read most of that: with default buffers, one that reads 1 KB/s is silent for
// 100 s again and again. So a peer that is to take something within a timeout has more time for each
// byte that it has acknowledged: a second for a KiB. But all of them give no more than four times the
// timeout, since the program may read nothing.
const (
	paidPerByte = int64(time.Second) / (1 << 10)
	paidMost    = 4
)

// Paid returns when the timeout of a peer begins that has taken something, or nothing, since earlier. It
// began at since otherwise, or at now if that is later.
func (s Sent) Paid(earlier Sent, since, now int64, timeout time.Duration) int64 {
	most := int64(paidMost * min(timeout, time.Hour))
	paid := min(s.Since(earlier), most/paidPerByte) * paidPerByte
	return min(max(since, now)+paid, now+most)
}
