package testnet

import "reflect"

// EachNumber calls visit for the numbers in v, embedded structs and elements of slices included.
func EachNumber(v reflect.Value, path string, visit func(path string, v reflect.Value)) {
	switch {
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			EachNumber(v.Field(i), path+"."+v.Type().Field(i).Name, visit)
		}
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			EachNumber(v.Index(i), path, visit)
		}
	case v.CanInt() || v.CanUint() || v.CanFloat():
		visit(path, v)
	}
}
