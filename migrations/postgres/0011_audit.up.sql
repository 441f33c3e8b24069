-- Who did what to others. What an entry does not name is '' or 0.
CREATE TABLE audit (
    id         text COLLATE "C" PRIMARY KEY,  -- begins with its time, and so ascends
    key_name   text COLLATE "C" NOT NULL,
    actor_id   text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    operation  text COLLATE "C" NOT NULL,
    user_id    text COLLATE "C" NOT NULL,
    chat_id    text COLLATE "C" NOT NULL,
    sequence   bigint NOT NULL,
    outlet_id  text COLLATE "C" NOT NULL,
    state      text COLLATE "C" NOT NULL,
    code       text COLLATE "C" NOT NULL,
    ended_at   bigint NOT NULL  -- milliseconds since 1970; 0: the call has not ended
);
