package report

import (
	"encoding/json"
	"io"

	"github.com/percore/percore/cmd/percore/internal/bench"
)

// JSON writes everything that was measured, with the latencies of every sample.
func JSON(w io.Writer, rep *bench.Report) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(rep)
}
