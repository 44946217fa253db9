package lint

import (
	"go/ast"
	"path"
	"slices"
	"strconv"
	"testing"
)

// shown are names that may show a type of an internal package.
var shown = map[string]string{
	"adapters/h2.Field":   "an alias, so that fields pass from the core to handlers as they are",
	"adapters/h2.Name":    "the same, for their names",
	"adapters/h2.ErrCode": "the same, for the codes of resets",
	"adapters/h2.Problem": "the same, for what a handler answers",
}

// signatures: no exported name of a public package shows a type of an internal one, which users could
// not name and whose documentation they don't find. A type may be defined by one
// (type Group engine.Group): its methods and its comment are the public package's own.
func signatures(t *testing.T, tr *tree) {
	used := make(map[string]bool)
	for _, f := range tr.files {
		if f.isTest() || f.syntax.Name.Name == "main" || isInternal(f.dir()) {
			continue
		}
		internals := f.internalImports()
		check := func(name string, parts ...ast.Node) {
			for _, part := range parts {
				for _, found := range internalTypes(part, internals) {
					if key := f.dir() + "." + name; shown[key] != "" {
						used[key] = true
						continue
					}
					t.Errorf("%s: %s shows %s, a type of an internal package; define a type of this package's, or leave the name unexported",
						tr.at(part.Pos()), name, found)
				}
			}
		}
		for _, decl := range f.syntax.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if decl.Name.IsExported() && receiverIsExported(decl) {
					check(decl.Name.Name, decl.Type)
				}
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						if spec.Name.IsExported() {
							check(spec.Name.Name, shownParts(spec)...)
						}
					case *ast.ValueSpec:
						if spec.Type != nil && slices.ContainsFunc(spec.Names, (*ast.Ident).IsExported) {
							check(spec.Names[0].Name, spec.Type)
						}
					}
				}
			}
		}
	}
	for key := range shown {
		if !used[key] {
			t.Errorf("%s shows no type of an internal package; take it out of shown", key)
		}
	}
}

// internalImports returns the names with which a file knows internal packages of this repository.
func (f *goFile) internalImports() map[string]bool {
	names := make(map[string]bool)
	for _, spec := range f.syntax.Imports {
		p, _ := strconv.Unquote(spec.Path.Value)
		dir, ok := localDir(p)
		if !ok || !isInternal(dir) {
			continue
		}
		if spec.Name != nil {
			names[spec.Name.Name] = true
		} else {
			names[path.Base(p)] = true
		}
	}
	return names
}

// shownParts returns what go doc shows of a type: all of it, except fields and methods that are not
// exported, and the type by which it is defined.
func shownParts(spec *ast.TypeSpec) (parts []ast.Node) {
	var list []*ast.Field
	switch typ := spec.Type.(type) {
	case *ast.StructType:
		list = typ.Fields.List
	case *ast.InterfaceType:
		list = typ.Methods.List
	case *ast.SelectorExpr:
		if !spec.Assign.IsValid() {
			return nil
		}
		return []ast.Node{typ}
	default:
		return []ast.Node{typ}
	}
	for _, field := range list {
		if len(field.Names) == 0 || slices.ContainsFunc(field.Names, (*ast.Ident).IsExported) {
			parts = append(parts, field.Type)
		}
	}
	return parts
}

// internalTypes returns the names of internal packages that a node mentions.
func internalTypes(n ast.Node, internals map[string]bool) (found []string) {
	ast.Inspect(n, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && internals[x.Name] {
				found = append(found, x.Name+"."+sel.Sel.Name)
			}
		}
		return true
	})
	return found
}
