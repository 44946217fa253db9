package httpadapter

import "github.com/percore/percore/adapters/httpadapter/internal/http1"

// reason is why the fast path declines a request: a verdict about its header, or one of these.
type reason uint8

const (
	reasonEnded      = reason(http1.Verdicts) + iota // the stream ended, or failed, in the middle of a request
	reasonTarget                                     // a target that is none for package url
	reasonKeepAlives                                 // keep-alives are off: net/http knows when they are on again

	reasonCount = iota + int(http1.Verdicts)
)

func reasonOf(v http1.Verdict) reason { return reason(v) }

func (r reason) String() string {
	switch r {
	case reasonEnded:
		return "ended"
	case reasonTarget:
		return "target"
	case reasonKeepAlives:
		return "keep-alives"
	}
	return http1.Verdict(r).String()
}
