package channel

import (
	"testing"

	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// TestMethods lists the methods that grpc-go's policies call, and those that would panic: they are nil.
func TestMethods(t *testing.T) {
	testnet.CheckMethods[*policy](t, testnet.MethodTable{
		Own:      "MetricsRecorder NewSubConn ResolveNow Target UpdateState",
		Promoted: map[string]string{"deprecated": "RemoveSubConn UpdateAddresses"},
	})
	testnet.CheckMethods[*subchannel](t, testnet.MethodTable{
		Own: "Connect RegisterHealthListener Shutdown",
		Promoted: map[string]string{
			"deprecated": "UpdateAddresses", "of weighted_round_robin and outlier_detection": "GetOrBuildProducer",
		},
	})
}
