// Package race says whether the race detector watches this build, and tells it of memory
// that the kernel reads and writes. The detector makes everything many times slower,
// and sync.Pool drop values at random, so that a test that counts allocations, or does
// much, must know.
package race
