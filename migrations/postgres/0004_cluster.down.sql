DROP TABLE rates;
DROP TABLE tickets;
DROP TABLE leases;
DROP TABLE cluster_nodes;
DROP TABLE cluster_epoch;
