//go:build !invariants

package pipes

// mustBeAsEmptyAsItSays asks the kernel, in a checking build.
func (p *Pipe) mustBeAsEmptyAsItSays() {}
