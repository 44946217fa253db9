package features

// Apply exports apply for tests.
var Apply = apply

// NewFeatures returns features with the names in All, in their initial state.
func NewFeatures() []*Feature {
	var features []*Feature
	for _, f := range All {
		features = append(features, &Feature{name: f.name})
	}
	return features
}
