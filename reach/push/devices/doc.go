// Package devices keeps where users can be notified: the registrations of their devices at
// providers, and what each user wants to be told. They are documents of the storage
// (storage.Documents), one for each user, and one for each address that says whose it is.
//
// An address belongs to the device that registered it last. So a phone that is handed on, or on
// which another user logs in, shows nothing of its former user (rule push_has_one_owner).
package devices
