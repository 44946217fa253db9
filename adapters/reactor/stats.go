package reactor

import "time"

// Stats describes the present state of a server.
type Stats struct {
	Conns int // open, and about to be opened or closed
	Loops []LoopStats
}

// LoopStats is about one loop.
type LoopStats struct {
	// Longest is the longest time that a callback took since the server was made. Without
	// Config.SlowCallback all calls of Data for the bytes of one read count as one.
	Longest time.Duration
}

// Stats returns the server's numbers.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := Stats{Conns: s.mu.conns}
	for _, l := range s.mu.loops {
		stats.Loops = append(stats.Loops, LoopStats{Longest: time.Duration(l.longest.Load())})
	}
	return stats
}
