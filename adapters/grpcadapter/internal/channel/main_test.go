package channel

import (
	"testing"

	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// TestMethods lists the methods that policies call. No other is promoted, since it would be nil.
func TestMethods(t *testing.T) {
	testnet.CheckMethods[*policy](t, testnet.MethodTable{
		Own: "MetricsRecorder NewSubConn RemoveSubConn ResolveNow Target UpdateAddresses UpdateState",
	})
	testnet.CheckMethods[*subchannel](t, testnet.MethodTable{
		Own: "Connect GetOrBuildProducer RegisterHealthListener Shutdown UpdateAddresses",
	})
}
