package fastpath

// Apply is apply, for tests.
var Apply = apply

// NewFeatures returns features of the names in All in their first state.
func NewFeatures() []*Feature {
	var features []*Feature
	for _, f := range All {
		features = append(features, &Feature{name: f.name})
	}
	return features
}
