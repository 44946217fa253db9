package report

import (
	"fmt"
	"time"

	"github.com/percore/percore/cmd/percore/internal/bench"
)

// Fact is a line of the table about the machine and the run.
type Fact struct{ Name, Value string }

// Facts lists the machine, the programs and how the run measured.
func Facts(rep *bench.Report) []Fact {
	h := rep.Host
	cpu := h.CPU
	if cpu == "" {
		cpu = h.Arch
	}
	all := []Fact{
		{"command", rep.Command},
		{"date", rep.Started.Format(time.RFC1123)},
		{"processor", fmt.Sprintf("%s, %d processors", cpu, h.CPUs)},
		{"memory", Scaled(float64(h.Memory), 1024, "B", "KiB", "MiB", "GiB")},
		{"kernel", h.Kernel},
		{"Go", h.Go + " " + h.OS + "/" + h.Arch},
		{"percore", h.Version},
	}
	for _, arm := range rep.Arms {
		if arm.GOMAXPROCS > 0 || arm.Env != nil || arm.Executable != "" { // else it is a Program, or took no part
			all = append(all, Fact{"arm " + arm.Name, armFact(arm)})
		}
	}
	for _, why := range rep.Uncounted {
		all = append(all, Fact{"not counted", why})
	}
	load := "builtin"
	if rep.SplitCPUs {
		load += ", on processors of its own"
	}
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	return append(all,
		Fact{"load", fmt.Sprintf("%s; windows of %v after %v of warm-up, %d per scenario and arm", load, seconds(rep.Window), seconds(rep.Warmup), rep.Rounds)},
		Fact{"took", seconds(rep.Took).Round(time.Second).String()},
	)
}

// armFact describes an arm.
func armFact(arm bench.Arm) string {
	s := "engine net"
	if arm.Engine.Percore {
		s = "engine percore"
	}
	if arm.GOMAXPROCS > 0 { // 0: the scenarios decide
		s += fmt.Sprintf(", GOMAXPROCS %d", arm.GOMAXPROCS)
	}
	if arm.Loops > 0 {
		s += fmt.Sprintf(", %d loops", arm.Loops)
	}
	for _, e := range arm.Env {
		s += ", " + e
	}
	if arm.Executable != "" {
		s += ", another build"
	}
	return s
}
