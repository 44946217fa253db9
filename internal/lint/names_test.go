package lint

import (
	"go/ast"
	"path"
	"regexp"
	"testing"
)

// quotedName is an exported name of a package, or a method or field of a type there, at the start of a
// code span.
var quotedName = regexp.MustCompile("`(\\w+)\\.([A-Z]\\w*(?:\\.[A-Z]\\w*)?)")

// othersToo are names of packages that others have as well, whose names documents quote.
var othersToo = map[string]bool{
	"client": true, "debug": true, "goroutine": true, "http2": true, "main": true, "prometheus": true, "stats": true,
}

// quotedNames: what documents quote of this project's packages is there.
func quotedNames(t *testing.T, tr *tree) {
	known := tr.exported()
	tr.eachLine(func(name string, number int, line string) {
		if path.Ext(name) != ".md" {
			return
		}
		for _, m := range quotedName.FindAllStringSubmatch(line, -1) {
			if names := known[m[1]]; names != nil && !othersToo[m[1]] && !names[m[2]] {
				t.Errorf("%s:%d: package %s has no exported %s; name what is meant", name, number, m[1], m[2])
			}
		}
	})
}

// exported returns the exported names of the packages, by the package's name: "Listen", "Conn.Read",
// "ListenConfig.MaxConns".
func (tr *tree) exported() map[string]map[string]bool {
	all := make(map[string]map[string]bool)
	for _, f := range tr.files {
		if f.isTest() {
			continue
		}
		names := all[f.syntax.Name.Name]
		if names == nil {
			names = make(map[string]bool)
			all[f.syntax.Name.Name] = names
		}
		for _, decl := range f.syntax.Decls {
			addNames(names, decl)
		}
	}
	return all
}

// addNames adds the names that a declaration makes.
func addNames(names map[string]bool, decl ast.Decl) {
	if fn, ok := decl.(*ast.FuncDecl); ok {
		prefix := ""
		if fn.Recv != nil {
			prefix = receiver(fn) + "."
		}
		names[prefix+fn.Name.Name] = true
		return
	}
	for _, spec := range decl.(*ast.GenDecl).Specs {
		switch spec := spec.(type) {
		case *ast.ValueSpec:
			for _, id := range spec.Names {
				names[id.Name] = true
			}
		case *ast.TypeSpec:
			names[spec.Name.Name] = true
			var fields *ast.FieldList
			switch of := spec.Type.(type) {
			case *ast.StructType:
				fields = of.Fields
			case *ast.InterfaceType:
				fields = of.Methods
			default:
				continue
			}
			for _, field := range fields.List {
				for _, id := range field.Names {
					names[spec.Name.Name+"."+id.Name] = true
				}
			}
		}
	}
}
