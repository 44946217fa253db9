//go:build !linux || percore_net

package handover

func leadsGroup() bool { return false }
