package httpadapter

import (
	"github.com/percore/percore"
	"github.com/percore/percore/internal/serving"
)

func init() { percore.RegisterAdapter("http", readFigures) }

// servers has the counters of the process's Servers.
var servers = serving.NewRegister(counterCount)

// readFigures returns the sums over all Servers of the process.
func readFigures() []percore.Figure { return sums(servers.Sums()).figures() }
