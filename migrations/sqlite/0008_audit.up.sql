-- Who did what to others. What an entry does not name is '' or 0.
CREATE TABLE audit (
    id         TEXT    NOT NULL PRIMARY KEY,  -- begins with its time, and so ascends
    key_name   TEXT    NOT NULL,
    actor_id   TEXT    NOT NULL,
    request_id TEXT    NOT NULL,
    operation  TEXT    NOT NULL,
    user_id    TEXT    NOT NULL,
    chat_id    TEXT    NOT NULL,
    sequence   INTEGER NOT NULL,
    outlet_id  TEXT    NOT NULL,
    state      TEXT    NOT NULL,
    code       TEXT    NOT NULL,
    ended_at   INTEGER NOT NULL  -- milliseconds since 1970; 0: the call has not ended
) STRICT, WITHOUT ROWID;
