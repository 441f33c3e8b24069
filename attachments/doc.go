// Package attachments keeps the files that messages name by s3_ref. It stands beside the core,
// which asks it by an interface of its own (server.Attachments).
//
// The bytes never pass through a request of the API: a client puts them to a URL that is signed for
// one file, and gets them from another. A leaf keeps the bytes and signs: dir in a directory, s3 in
// a bucket. What is known of a file is a document of the store:
//
//	kind                     name    value
//	attachment:FILE          file    a record
//	uploads:HOUR             FILE    {}, so that the sweep finds the files of an hour
//	attachments-of:HASH      FILE    {}, so that an erasure finds the files of a user
//	uploaded:DAY             USER    how many bytes of files the user announced on that day
//	attachments              swept   the hour that the sweep comes to next
//
// A file is announced, then uploaded, then pinned by the first send that names it. The sweep
// (sweep.go) removes a file that is not pinned after OrphanAfter, or whose only send has stored no
// message. It keeps all others. Pin and sweep change the same document by its version, so one of
// them comes first (R_PIN).
//
// When a user is erased, all their files are removed (forget.go), also those that messages name.
package attachments
