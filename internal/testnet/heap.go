package testnet

import "runtime"

// HeapBytes returns how much memory is in use on the heap. It collects garbage three times: what the
// pools of package sync hold outlives one collection, and a finalizer's object another.
func HeapBytes() int {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
