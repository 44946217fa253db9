//go:build !race

package sys

func raceReadDone([]byte) {}
func raceWrite([]byte)    {}
