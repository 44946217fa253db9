//go:build !invariants

package invariants

// Enabled is true in a checking build (-tags invariants).
const Enabled = false
