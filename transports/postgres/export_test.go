package postgres

// SweepOnce removes what is over.
var SweepOnce = sweep
