package storagetest

import "github.com/tidemark-im/tidemark/storage"

// Faulty is a store that fails when a test wants it to. Set the hooks before the store is used; they are called
// concurrently, and decide for themselves when to fail.
type Faulty struct {
	intercepted
	// Before, if set, is given the name of each method called, such as "Append". If it returns an error, the call is not
	// made: a database that could not be reached.
	Before func(method string) error
	// After, if set, is asked once the call has succeeded. If it returns an error, the caller gets that instead
	// of the results: a lost reply.
	After func(method string) error
}

// Fault returns a store that behaves as s does until a hook is set.
func Fault(s storage.Store) *Faulty {
	f := &Faulty{}
	f.intercepted = intercepted{Store: s, around: func(method string, _ int, call func() error) error {
		if f.Before != nil {
			if err := f.Before(method); err != nil {
				return err
			}
		}
		if err := call(); err != nil || f.After == nil {
			return err
		}
		return f.After(method)
	}}
	return f
}
