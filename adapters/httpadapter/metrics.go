package httpadapter

import (
	"github.com/percore/percore"
	"github.com/percore/percore/internal/serving"
)

func init() { percore.RegisterAdapter("http", readMetrics) }

// servers has the counters of the process's Servers.
var servers = serving.NewRegister(counterCount)

// readMetrics returns the sums over all Servers of the process.
func readMetrics() []percore.Metric { return sums(servers.Sums()).metrics() }
