package storagetest

import "github.com/tidemark-im/tidemark/storage"

// Faulty is a store that fails when a test wants it to. Set the hooks before the first call. They
// are called concurrently, and decide which calls fail.
type Faulty struct {
	intercepted
	// Before, if set, gets the name of each method before the call, such as "Append". If it returns
	// an error, the call is not made, as if the database could not be reached.
	Before func(method string) error
	// After, if set, gets the name of the method after each successful call. If it returns an
	// error, the caller gets this error and no results, as if the reply was lost.
	After func(method string) error
}

// Fault returns a store that behaves as s does until a hook is set.
func Fault(s storage.Store) *Faulty {
	f := &Faulty{}
	around := func(method string, _ int, call func() error) error {
		if f.Before != nil {
			if err := f.Before(method); err != nil {
				return err
			}
		}
		if err := call(); err != nil || f.After == nil {
			return err
		}
		return f.After(method)
	}
	f.intercepted = intercepted{Store: s, around: around}
	return f
}
