-- What the nodes of a cluster without Redis share (server/registry/postgres, transports/postgres).
-- All of it are hints, so the tables are unlogged: they cost no WAL and no wait for the disk. They
-- are empty after a crash and on a promoted standby. In a restored dump they are as they were,
-- unless pg_dump had --no-unlogged-table-data. But cluster_epoch.data is not the newest of lives
-- there, so the first node removes all leases and nodes. Tickets and rates end by their times.
-- Times are milliseconds since 1970 by the clock of the database.

-- The epoch (registry.Epoch): one row. Each change of nodes locks it.
CREATE UNLOGGED TABLE cluster_epoch (
    one         boolean PRIMARY KEY DEFAULT true CHECK (one),
    data        text    NOT NULL,  -- the incarnation of the data (lives.id)
    incarnation text    NOT NULL,  -- random
    crashes     bigint  NOT NULL DEFAULT 0
) WITH (fillfactor = 10, autovacuum_vacuum_cost_delay = 0);

CREATE UNLOGGED TABLE cluster_nodes (
    id         text    COLLATE "C" PRIMARY KEY,
    boot       text    NOT NULL,
    address    text    NOT NULL,  -- where the others reach it
    expires    bigint  NOT NULL,
    alive      boolean NOT NULL,  -- false once its end was noticed
    complaints bigint  NOT NULL   -- of nodes that did not reach it since its last heartbeat
) WITH (fillfactor = 50, autovacuum_vacuum_cost_delay = 0);

-- The leases of a user's sessions and their proof of a clean close. One row is one lock.
CREATE UNLOGGED TABLE leases (
    user_id text   COLLATE "C" PRIMARY KEY,
    leases  text   NOT NULL,  -- "expires|node|boot|session|device …"
    proof   text   NOT NULL,  -- "crashes|incarnation", or empty
    until   bigint NOT NULL   -- when the last of them ends; the row may go then
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE UNLOGGED TABLE tickets (
    hash     text   COLLATE "C" PRIMARY KEY,
    user_id  text   NOT NULL,
    key      text   NOT NULL,  -- the API key that made it, or empty
    expires  bigint NOT NULL,  -- of the credentials, or 0
    redeemed text,             -- the attempt that redeemed it
    session  text,             -- the session that it is bound to
    until    bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- The buckets of rates. One that does not exist is full.
CREATE UNLOGGED TABLE rates (
    bucket  text             COLLATE "C" NOT NULL,
    user_id text             COLLATE "C" NOT NULL,
    remains double precision NOT NULL,  -- at the time "at"
    at      bigint           NOT NULL,
    until   bigint           NOT NULL,  -- when it is full
    PRIMARY KEY (bucket, user_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
