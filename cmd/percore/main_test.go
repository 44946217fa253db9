package main

import (
	"os"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// commandVariable makes the test binary be the percore command: it then runs main on its arguments. So
// the tests start the real program in a process of its own, with the race detector in it whenever they
// are run with -race, and need no build. It is inherited, so that processes which that program starts of
// its own binary are the command, too.
const commandVariable = "PERCORE_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(commandVariable) != "" {
		main()
		return
	}
	// A service manager that runs the tests must hear nothing of the processes that they start.
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		os.Unsetenv(name)
	}
	testnet.Main(m)
}
