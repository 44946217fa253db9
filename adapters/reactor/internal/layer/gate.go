package layer

// Gate bounds how many handshakes compute at a time. More would not be done sooner, and the loops
// would wait behind all of them for a processor.
type Gate struct{ places chan struct{} }

// NewGate makes a gate for n at a time.
func NewGate(n int) *Gate { return &Gate{make(chan struct{}, n)} }

// Enter waits for a place.
func (g *Gate) Enter() { g.places <- struct{}{} }

// Leave gives the place up, also while a handshake waits for its peer.
func (g *Gate) Leave() { <-g.places }
