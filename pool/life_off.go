//go:build !invariants

package pool

// What a checking build remembers of buffers; nothing here. The compiler removes
// the calls. The counterparts in life_on.go say what they do. (begin and leaks
// mention the fields only so that a linter doesn't find them unused.)

type (
	lifeRef struct{}
	lives   struct{}
)

func (b *Buffer) begin(string)    { _ = b.life }
func (b *Buffer) mustLive(string) {}
func (b *Buffer) retained(string) {}
func (b *Buffer) released(string) {}
func (b *Buffer) retire() *Buffer { return b }

func poison([]byte)             {}
func checkPoisonGrowing([]byte) {}

// leaks lists the buffers with references, slices included in those of their root.
func (p *Pool) leaks() []Leak {
	_ = p.lives
	var leaks []Leak
	p.lockClasses()
	defer p.unlockClasses()
	for i := range p.classes {
		p.classes[i].eachLocked(func(rec *record) {
			if n := rec.references(); n > 0 {
				leaks = append(leaks, Leak{Bytes: rec.bytes.Load(), References: int(n)})
			}
		})
	}
	return leaks
}
