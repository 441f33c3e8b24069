package storage

import "github.com/tidemark-im/tidemark"

// Schema says which schema a store has, and which one this program needs.
//
// A migration that only adds to the schema leaves Compatible as it is, so older programs continue
// to work. A migration that removes something that programs need raises Compatible to the oldest
// program that does not need it.
type Schema struct {
	// Version is the number of the store's latest migration, 0 if there was none.
	Version uint
	// Compatible is the oldest program that may work with the store, named by the version that it
	// needs. It is 0 if the store has no schema, or if its first migration has not ended.
	Compatible uint
	// Needed is the number of this program's latest migration.
	Needed uint
	// Dirty reports that a migration to Version has begun and has not ended. If no process is
	// migrating, an operator must repair the store.
	Dirty bool
}

// Whole returns a Conflict if the store has a version and does not say which programs may work with
// it, unless it is Dirty: the first migration may not have ended.
func (s Schema) Whole() error {
	//rule:schema_fits.refuse-damaged
	if s.Version > 0 && s.Compatible == 0 && !s.Dirty {
		return tidemark.Errorf(tidemark.Conflict,
			"the schema has version %d, and does not say which programs may use it: it was "+
				"damaged, or it is another program's; restore a backup, or give Tidemark "+
				"another --store", s.Version)
	}
	return nil
}

// Fit returns nil if this program may work with the store. Otherwise it returns a Conflict that
// says what to do.
func (s Schema) Fit() error {
	switch {
	case s.Dirty && s.Compatible == 0:
		return s.Ended()
	//rule:schema_fits.refuse-incompatible
	case s.Compatible > s.Needed:
		return tidemark.Errorf(tidemark.Conflict,
			"the schema has version %d, for programs that need version %d or a later one, and "+
				"this program needs %d; run a newer program", s.Version, s.Compatible, s.Needed)
	// Compatible admits this program. If the store is Dirty, a newer program's migration has failed
	// or is under way. A failed one has changed nothing that this program uses.
	//rule:schema_fits.accept-newer
	case s.Version > s.Needed:
		return nil
	case s.Dirty:
		return s.Ended()
	//rule:schema_fits.refuse-older
	case s.Version < s.Needed:
		return tidemark.Errorf(tidemark.Conflict,
			"the schema has version %d, and this program needs %d; run tidemark migrate up with "+
				"the same --store, or serve with --migrate", s.Version, s.Needed)
	}
	return nil
}

// Upgradable reports whether the schema is older than this program needs, and this program can
// migrate it.
func (s Schema) Upgradable() bool {
	return s.Version < s.Needed && s.Compatible <= s.Needed && !s.Dirty
}

// Ended returns a Conflict if the store is Dirty: a migration has begun and has not ended.
func (s Schema) Ended() error {
	if !s.Dirty {
		return nil
	}
	return tidemark.Errorf(tidemark.Conflict,
		"a migration to version %d failed half-way, or has not ended yet; if it failed, repair "+
			"the schema by hand, or restore a backup", s.Version)
}

// Reversible returns a Conflict if this program cannot revert the latest migration, because a newer
// program made it.
func (s Schema) Reversible() error {
	//rule:schema_fits.revert-own-migrations
	if s.Version > s.Needed {
		return tidemark.Errorf(tidemark.Conflict,
			"the schema has version %d, and this program has the migrations up to %d; run "+
				"tidemark migrate down with the newer program", s.Version, s.Needed)
	}
	return nil
}
