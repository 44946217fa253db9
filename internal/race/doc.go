// Package race says whether the race detector is on in this build, and tells it about memory that
// the kernel reads and writes. The detector makes everything many times slower, and makes sync.Pool
// drop values at random, so a test that counts allocations, or does much work, must know.
package race
