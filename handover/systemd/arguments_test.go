package systemd

import (
	"context"
	"os/exec"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// TestArguments calls everything with nil and zero values.
func TestArguments(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	n := new(Notifier)
	testnet.CheckArguments(t, map[string]testnet.Call{
		"Notify":              {Func: Notify},
		"Notifier.HandedOver": {Func: n.HandedOver},
		"Notifier.Stopping":   {Func: n.Stopping},
		"Watchdog.PassOn":     {Func: Watchdog{}.PassOn, Args: []any{exec.Command("true")}},
		"Watchdog.Run":        {Func: Watchdog{}.Run, Args: []any{context.Background(), n}, Nils: "groups ..."},
	})
}
