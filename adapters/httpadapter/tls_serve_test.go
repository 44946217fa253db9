package httpadapter

import (
	"testing"
)

// TestFastPathOverTLS runs the fast path's tests over TLS: see overTLS.
func TestFastPathOverTLS(t *testing.T) {
	for _, version := range []string{"1.3", "1.2"} {
		if version == "1.2" && testing.Short() {
			continue
		}
		t.Run(version, func(t *testing.T) {
			for name, test := range map[string]func(t *testing.T){
				"HoldsNothing":            TestFastPathHoldsNothing,
				"WorkersFollowRequests":   TestWorkersFollowRequests,
				"HandedOverAndBack":       TestHandedOverAndBack,
				"Context":                 TestFastPathContext,
				"Hijack":                  TestFastPathHijack,
				"Panics":                  TestFastPathPanics,
				"Ends":                    TestFastPathEnds,
				"KeepAlivesOff":           TestFastPathKeepAlivesOff,
				"Timeouts":                TestFastPathTimeouts,
				"Limit":                   TestFastPathLimit,
				"Files":                   TestFastPathFiles,
				"LateWrites":              TestFastPathLateWrites,
				"EndOfPipeline":           TestFastPathEndOfPipeline,
				"SpuriousCallback":        TestFastPathSpuriousCallback,
				"SpuriousCallbackBetween": TestFastPathSpuriousCallbackBetween,
				"CloseInHijack":           TestFastPathCloseInHijack,
				"FailedWrite":             TestFastPathFailedWrite,
				"OneRequest":              TestFastPathOneRequest,
				"HooksPanic":              TestFastPathHooksPanic,
				"Soak":                    TestFastPathSoak,
			} {
				t.Run(name, test)
			}
		})
	}
}
