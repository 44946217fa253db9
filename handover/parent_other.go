//go:build !unix

package handover

func leadsGroup() bool { return false }
