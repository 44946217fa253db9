package systemd

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// messages are what Notifiers have sent, without the time of a reload.
type messages struct {
	mu  sync.Mutex
	all []string
}

// messagesOf makes Notifiers send to messages until the test ends, and log to log.
func messagesOf(t *testing.T) (m *messages, log *testnet.Log) {
	m, log = new(messages), new(testnet.Log)
	logger := slog.Default()
	notify = m.send
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	t.Cleanup(func() {
		notify = send
		slog.SetDefault(logger)
	})
	return m, log
}

func (m *messages) send(message string) error {
	message, _, _ = strings.Cut(message, "\nMONOTONIC_USEC=")
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, message)
	return nil
}

func (m *messages) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.all)
}

// Only the process that is the service says anything.
func TestNotifierStates(t *testing.T) {
	for _, test := range []struct {
		name    string
		watched bool
		calls   func(*Notifier)
		want    []string
	}{
		{"a failed reload", false, func(n *Notifier) {
			n.Alive()
			n.Reloading()
			n.Stopping(0)
			n.Ready()
			n.Alive()
			n.Reloading()
			n.Ready()
			n.Stopping(2 * time.Second)
		}, []string{"READY=1", "WATCHDOG=1", "RELOADING=1", "READY=1", "STOPPING=1\nEXTEND_TIMEOUT_USEC=7000000"}},
		{"a handover", false, func(n *Notifier) {
			n.Ready()
			n.HandedOver(17)
			n.Ready()
			n.Succeeded()
			n.Alive()
			n.Stopping(0)
		}, []string{"READY=1", "MAINPID=17\nREADY=1"}},
		{"a watched successor", true, func(n *Notifier) {
			n.Succeeded()
			n.HandedOver(18)
		}, []string{"MAINPID=18\nREADY=1\nWATCHDOG=1"}},
		{"an orphan", false, func(n *Notifier) {
			n.Orphaned()
			n.Orphaned()
			n.Alive()
		}, []string{fmt.Sprintf("MAINPID=%d\nREADY=1", os.Getpid()), "WATCHDOG=1"}},
	} {
		got, _ := messagesOf(t)
		n := new(Notifier)
		if test.watched {
			n.watchdog = time.Second
		}
		test.calls(n)
		if !slices.Equal(got.all, test.want) {
			t.Errorf("%s: got %q, want %q", test.name, got.all, test.want)
		}
	}
}

// A message that can't be sent is a line in the log.
func TestNotifierFails(t *testing.T) {
	_, log := messagesOf(t)
	notify = func(string) error { return errors.New("no manager") }
	new(Notifier).Ready()
	if log.Count("no manager") != 1 {
		t.Errorf("got %q, want a line", log.String())
	}
}

// The environment's watchdog is taken once, unless it is another process's, and passed on without a pid.
func TestInheritWatchdog(t *testing.T) {
	for _, test := range []struct {
		usec, pid string
		want      time.Duration
		wantErr   string
	}{
		{"", "", 0, ""},
		{"50000", "", 50 * time.Millisecond, ""},
		{"50000", "1", 0, ""},
		{"0", "", 0, "WATCHDOG_USEC"},
		{"9223372036854775807", "", 0, "WATCHDOG_USEC"},
		{"5s", "", 0, "WATCHDOG_USEC"},
		{"50000", "me", 0, ""},
	} {
		t.Setenv("WATCHDOG_USEC", test.usec)
		t.Setenv("WATCHDOG_PID", test.pid)
		n := new(Notifier)
		err := n.InheritWatchdog()
		if n.watchdog != test.want || (err == nil) != (test.wantErr == "") || err != nil && !strings.Contains(err.Error(), test.wantErr) {
			t.Errorf("%+v: got %v, %v", test, n.watchdog, err)
		}
		again := new(Notifier)
		if err := again.InheritWatchdog(); again.watchdog != 0 || err != nil {
			t.Errorf("%+v: a second call got %v, %v", test, again.watchdog, err)
		}
		cmd := exec.Command("true")
		n.PassOn(cmd)
		if has := slices.Contains(cmd.Env, "WATCHDOG_USEC=50000"); has != (test.want > 0) {
			t.Errorf("%+v: the command's environment has the watchdog: %t", test, has)
		}
	}
}

// Sockets for another process are not this one's, and the variables don't reach those it starts.
func TestSocketsOfAnother(t *testing.T) {
	t.Setenv("LISTEN_PID", "1")
	t.Setenv("LISTEN_FDS", "1")
	if files := Sockets(); files != nil {
		t.Errorf("got %d sockets, want none", len(files))
	}
	if _, ok := os.LookupEnv("LISTEN_FDS"); ok {
		t.Error("LISTEN_FDS is still there")
	}
}
