package load

import (
	"time"

	"golang.org/x/sys/unix"
)

// sharpenSleep makes the kernel end the calling thread's sleeps on time. By default the kernel may
// end a sleep 50 µs late, so that several sleeps end together (prctl(2), PR_SET_TIMERSLACK).
func sharpenSleep() {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // without it the sleeps are just less precise
}

// sleep blocks the calling thread for d or until a signal, whichever comes first.
func sleep(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil) // EINTR: the caller checks the clock
}
