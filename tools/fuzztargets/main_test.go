package main

import (
	"slices"
	"testing"
)

// TestFind: the targets of the library and of other modules are there, each once.
func TestFind(t *testing.T) {
	targets, err := find("../..")
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	for _, target := range targets {
		if names[target.Name] {
			t.Errorf("%s is there twice", target.Name)
		}
		names[target.Name] = true
	}
	for _, want := range []fuzzTarget{
		{modulePath + "/internal/loop", "FuzzWheel", "internal-loop-FuzzWheel"},
		{modulePath + "/conformance_test", "FuzzConn", "conformance_test-FuzzConn"},
		{modulePath + "/adapters/grpcadapter", "FuzzMessages", "adapters-grpcadapter-FuzzMessages"},
	} {
		if !slices.Contains(targets, want) {
			t.Errorf("%v is missing", want)
		}
	}
}
