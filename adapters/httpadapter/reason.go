package httpadapter

import "github.com/percore/percore/adapters/httpadapter/internal/http1"

// reason is why a request is odd: a verdict about its header, or one of these.
type reason uint8

const (
	reasonEnded  = reason(http1.Verdicts) + iota // the stream ended, or failed, in the middle of a request
	reasonTarget                                 // a target that is none for package url

	reasonCount = iota + int(http1.Verdicts)
)

func reasonOf(v http1.Verdict) reason { return reason(v) }

func (r reason) String() string {
	switch r {
	case reasonEnded:
		return "ended"
	case reasonTarget:
		return "target"
	}
	return http1.Verdict(r).String()
}
