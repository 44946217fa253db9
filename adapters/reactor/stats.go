package reactor

import "time"

// Stats says how a server stands.
type Stats struct {
	Conns int // open, and about to be opened or closed
	Loops []LoopStats
}

// LoopStats is about one loop.
type LoopStats struct {
	Longest time.Duration // the longest that a callback took since the server was made
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
