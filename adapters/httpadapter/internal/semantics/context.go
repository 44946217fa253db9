package semantics

// AfterFuncer is the key for which a context that has a method AfterFunc returns itself from Value. Like
// the function context.AfterFunc, the method calls a function once the context ends. Package context
// finds the method of such a context, but not below one that adds a value: then it needs a goroutine.
var AfterFuncer any = new(afterFuncerKey)

type afterFuncerKey struct{ _ byte }
