package sys

import "testing"

func TestReleaseBefore(t *testing.T) {
	for _, test := range []struct {
		release string
		want    bool
	}{
		{"6.3.13", true},
		{"6.4.0", false},
		{"6.4", false},
		{"6.18.5-generic", false},
		{"5.15.0-1034-aws", true},
		{"4.9", true},
		{"10.0.1", false},
		{"", false},
		{"unknown", false},
		{"6", false},
	} {
		if got := releaseBefore(test.release, 6, 4); got != test.want {
			t.Errorf("%q before 6.4: got %t, want %t", test.release, got, test.want)
		}
	}
}
