package grpcadapter

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// panicking is a codec that panics.
type panicking struct{ encoding.Codec }

func (panicking) Marshal(any) ([]byte, error) { panic("marshal") }
func (panicking) Name() string                { return "panicking" }

// TestClientPanics: a panic of the user's code reaches the caller, who may recover from it.
func TestClientPanics(t *testing.T) {
	testnet.NoLeaks(t)
	lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
	startOwn(t, lis)
	c := dialClient(t, lis)
	func() {
		defer func() {
			if got := recover(); got != "marshal" {
				t.Errorf("recovered %v, want the codec's panic", got)
			}
		}()
		_ = callEcho(callContext(t), c, nil, grpc.ForceCodec(panicking{}))
	}()
	if err := callEcho(callContext(t), c, nil); err != nil {
		t.Error(err)
	}
}
